"""Outages of discovery under GPU pods, in every mode of drivers. Judged from the machines: whatever labels go, no driver does."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.states import State
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_discovery import bring_back, lose
from tests.journeys.test_moves import OTHER_KERNEL, Watcher, at_rest, uids, with_workloads
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver
from tests.journeys.test_removed import COMPILED, DEFAULT, NVIDIADRIVER, PRECOMPILED, installed

PRECOMPILED_NVIDIADRIVER = "precompiled NVIDIADriver"
MODES = pytest.mark.parametrize("mode", [COMPILED, PRECOMPILED, NVIDIADRIVER, PRECOMPILED_NVIDIADRIVER])
MINUTE = 60.0


async def serving(stage: Stage, mode: str) -> Watcher:
    """Let drivers of a mode run on all nodes, and a GPU pod on each."""
    if mode == PRECOMPILED_NVIDIADRIVER:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver(DEFAULT, {"maxUnavailable": 1}, default=True, version="580", usePrecompiled=True))
        await stage.installed()
    else:
        await installed(stage, mode)
    return await with_workloads(stage)


async def ask_for(stage: Stage, mode: str, version: str) -> None:
    if mode in (NVIDIADRIVER, PRECOMPILED_NVIDIADRIVER):
        await set_driver(stage, DEFAULT, {"version": version})
    else:
        await stage.patch_policy("driver/version", version)


def loaded(stage: Stage) -> list[str]:
    return [stage.driver(node) for node in sorted(stage.states())]


@MODES
def test_silence_of_discovery_takes_no_driver_also_over_a_restart(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        pods, drivers = uids(stage), loaded(stage)
        lost = {node: await lose(stage, node) for node in stage.states()}
        await stage.rest(15 * MINUTE)
        await stage.restart_operator()
        await stage.rest(15 * MINUTE)
        assert (uids(stage), loaded(stage)) == (pods, drivers)
        for node, labels in lost.items():
            await stage.rest(MINUTE)
            await bring_back(stage, node, labels)
        await stage.rest(15 * MINUTE)
        assert (uids(stage), loaded(stage)) == (pods, drivers)
        await at_rest(stage, watcher)

    scenario()


@MODES
@pytest.mark.parametrize("prefix", [names.NFD_OS_ID, names.NFD_OS_VERSION, names.NFD_KERNEL, names.NFD_PREFIX + "pci-",
                                    names.NFD_PREFIX])
def test_labels_that_one_node_loses_take_no_driver(mode: str, prefix: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        pods, drivers = uids(stage), loaded(stage)
        labels = await lose(stage, "gpu-2", prefix)
        assert labels
        await stage.rest(25 * MINUTE)
        await stage.restart_operator()
        await stage.rest(15 * MINUTE)
        assert (uids(stage), loaded(stage)) == (pods, drivers)
        await bring_back(stage, "gpu-2", labels)
        await stage.rest(MINUTE)
        assert (uids(stage), loaded(stage)) == (pods, drivers)
        await at_rest(stage, watcher)

    scenario()


@MODES
@pytest.mark.parametrize(("key", "value"), [(names.NFD_OS_VERSION, "24.04"), (names.NFD_KERNEL, OTHER_KERNEL)])
def test_a_label_that_is_edited_takes_no_driver_from_under_a_pod(mode: str, key: str, value: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        await stage.label("gpu-2", key, value)
        await stage.rest(30 * MINUTE)
        assert watcher.torn == []
        assert all(stage.driver(node) for node in ("gpu-1", "gpu-3"))
        assert (stage.most_in_progress, stage.most_unavailable) in {(0, 0), (1, 1)}

    scenario()


@MODES
def test_a_rollout_that_begins_in_silence_tears_no_driver_and_ends_when_discovery_is_back(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        lost = {node: await lose(stage, node) for node in stage.states()}
        await stage.rest(MINUTE)
        before = loaded(stage)
        await ask_for(stage, mode, "590" if "recompiled" in mode else NEW)
        await stage.rest(10 * MINUTE)
        assert watcher.torn == []
        for node, labels in lost.items():
            await bring_back(stage, node, labels)
        await stage.until(lambda: watcher.torn or set(loaded(stage)).isdisjoint(before), within=3600)
        await at_rest(stage, watcher)
        assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)

    scenario()


@MODES
def test_labels_that_go_in_mid_upgrade_strand_no_node(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        before = loaded(stage)
        await ask_for(stage, mode, "590" if "recompiled" in mode else NEW)
        await stage.until(lambda: any(state == State.POD_RESTART_REQUIRED for state in stage.states().values()), within=600)
        lost = {node: await lose(stage, node) for node in stage.states()}
        await stage.rest(10 * MINUTE)
        for node, labels in lost.items():
            await bring_back(stage, node, labels)
        await stage.until(lambda: watcher.torn or set(loaded(stage)).isdisjoint(before), within=3600)
        await at_rest(stage, watcher)

    scenario()
