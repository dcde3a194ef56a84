"""What `gpuward drivers` shows of a fleet, in each place where drivers come from."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console

from gpuward.cli.drivers import pool_table, problems_of
from gpuward.cli.status import Choice
from gpuward.kube import resources
from gpuward.report.pools import pool_reports
from tests.journeys.looking import looking
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import set_driver

KERNELS = ["5.15.0-101-generic", "6.8.0-45-generic"]
"""Of the sandbox's machines."""


async def shown(stage: Stage, **choice: Any) -> list[list[str]]:
    """Return the cells of the table, row by row."""
    asked = Choice(**choice)
    async with looking(stage) as picture:
        pools = pool_reports(asked.of(picture), picture.snapshot, picture.drivers, idle=not choice)
    console = Console(width=250, force_terminal=False)
    with console.capture() as capture:
        console.print(pool_table(pools))
    return [re.split(r" {2,}", line.strip()) for line in capture.get().splitlines()]


@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 1})
async def test_a_fleet_in_mid_upgrade_with_a_node_that_is_held(stage: Stage) -> None:
    await stage.installed()
    assert await shown(stage) == [
        ["FROM", "NODES", "TARGET", "LOADED", "KERNELS", "PROGRESS"],
        ["ClusterPolicy cluster-policy", "4", OLD, f"{OLD} (4)", ", ".join(f"{one} (2)" for one in KERNELS), "4/4 up to date"],
    ]
    await stage.deploy("guarded", 1, node="gpu-4", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: [stage.driver(f"gpu-{number}") for number in (1, 2, 3)] == [NEW] * 3, 3600)
    await stage.until(lambda: stage.states()["gpu-3"] == "upgrade-done" and stage.hold("gpu-4") == "BudgetBlocks")
    (_, row) = await shown(stage)
    assert row[1:4] == ["4", NEW, f"{NEW} (3), {OLD} (1)"]
    assert row[5:] == ["3/4 up to date, 1 held", "BudgetBlocks (1)"]
    (_, row) = await shown(stage, held=True)
    assert row[1:4] == ["1", NEW, f"{OLD} (1)"]


@on_stage(gpu_nodes=3)
async def test_each_nvidia_driver_is_a_pool_and_so_is_one_without_nodes(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("idle"), nvidia_driver("b", default=True, version=NEW))
    await stage.installed()
    rows = await shown(stage)
    assert [row[:4] for row in rows[1:]] == [
        ["NVIDIADriver a", "2", OLD, f"{OLD} (2)"],
        ["NVIDIADriver b", "1", NEW, f"{NEW} (1)"],
        ["NVIDIADriver idle", "0", OLD],
    ]
    assert [row[0] for row in (await shown(stage, nodes=("gpu-3",)))[1:]] == ["NVIDIADriver b"]


@on_stage(gpu_nodes=4)
async def test_pools_of_one_nvidiadriver_are_told_apart_by_their_operating_systems(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", default=True))
    await stage.installed()
    rows = await shown(stage)
    assert [row[:2] for row in rows[1:]] == [["NVIDIADriver a on ubuntu22.04", "2"], ["NVIDIADriver a on ubuntu24.04", "2"]]


@on_stage(gpu_nodes=3)
async def test_each_precompiled_kernel_is_a_pool(stage: Stage) -> None:
    await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()
    rows = await shown(stage)
    assert rows[0][:4] == ["FROM", "PRECOMPILED FOR", "NODES", "TARGET"]
    assert {row[1]: row[2] for row in rows[1:]} == {f"{KERNELS[0]} ubuntu22.04": "2", f"{KERNELS[1]} ubuntu24.04": "1"}
    async with looking(stage) as picture:
        pools = [pool.as_json() for pool in pool_reports(Choice().of(picture), picture.snapshot, picture.drivers)]
    on = {node: stage.node(node)["status"]["nodeInfo"]["kernelVersion"] for node in ("gpu-1", "gpu-2", "gpu-3")}
    assert {pool["precompiledFor"]: pool["nodes"] for pool in pools} == {
        kernel: [node for node in on if on[node] == kernel] for kernel in KERNELS}
    assert [pool["upToDate"] for pool in pools] == [2, 1]


@pytest.mark.parametrize("operator", [True, False], ids=["operator-runs", "no-operator"])
def test_an_nvidiadriver_that_was_deleted_is_said_to_be_gone(operator: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a"), nvidia_driver("b", default=True, version=NEW))
        await stage.installed()
        if not operator:
            await stage.kill_operator()
        for name in ("a", "b") if operator else ("a",):  # nodes of one go to another, and this is about those that stay
            await stage.user.delete(resources.NVIDIA_DRIVERS, name, propagation="Orphan")
        await stage.rest(120)
        table, *told = await gone_of(stage)
        assert table[:2] == ["NVIDIADriver a (gone)", "2"]
        (ds,) = {pod["metadata"]["ownerReferences"][0]["name"] for node in ("gpu-1", "gpu-2") for pod in driver_pods(stage, node)}
        said = f"NVIDIADriver a is gone, and DaemonSet {ds} is an orphan: its drivers run on, and none is upgraded; make an"
        assert said in told[0][0]
        assert len(told) == (2 if operator else 1)
        if operator:
            await make(stage, nvidia_driver("a"), nvidia_driver("b", default=True, version=NEW))
            await stage.rest(900)
            assert [row[0] for row in (await shown(stage))[1:]] == ["NVIDIADriver a", "NVIDIADriver b"]

    scenario()


async def gone_of(stage: Stage) -> list[list[str]]:
    """Return the first row of the table, and what is said below it."""
    async with looking(stage) as picture:
        pools = pool_reports(Choice().of(picture), picture.snapshot, picture.drivers)
    return [(await shown(stage))[1], *([problem] for problem in problems_of(pools))]
