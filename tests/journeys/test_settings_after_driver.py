"""Settings that are written right after a driver, as by `kubectl apply -f` of a folder, count for all nodes that get it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpuward.kube import resources
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_clocks import operate
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_prestage import IMAGE, slow, staging_pods
from tests.journeys.test_removed import DEFAULT, MODES, NVIDIADRIVER, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import ALL_AT_ONCE, CANARY, abort, on_new
from tests.journeys.test_windows import ask

Edit = Callable[[Stage, str], Awaitable[None]]


async def the_canary_alone_starts(stage: Stage, mode: str, edit: Edit) -> None:
    """Write waves two seconds after an edit that lets all nodes start."""
    await installed(stage, mode, out=4)
    if mode == NVIDIADRIVER:
        await set_driver(stage, DEFAULT, {"upgradePolicy": ALL_AT_ONCE})
    (old,) = stage.drivers()
    await edit(stage, mode)
    await stage.rest(2)
    await apply(stage, waves=[{**CANARY, "soak": "30m"}])
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert on_new(stage, old) == ["gpu-1"]


@MODES
def test_waves_that_are_written_two_seconds_after_the_driver_let_the_canary_alone_start(mode: str) -> None:
    @on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await the_canary_alone_starts(stage, mode, ask)
        assert stage.states()["gpu-3"] == "upgrade-required"

    scenario()


@on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_they_count_where_the_operators_clock_is_behind_that_of_the_api_server(stage: Stage) -> None:
    await stage.installed()
    await operate(stage, -0.9)
    await stage.rest(61.95 - stage.clock.now() % 1)
    await stage.upgrade_to(NEW)
    await stage.rest(2)
    await apply(stage, waves=[{**CANARY, "soak": "30m"}])
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert on_new(stage) == ["gpu-1"]


@on_stage(gpu_nodes=4)
async def test_they_count_for_nodes_that_go_to_a_new_nvidiadriver(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True))
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3 gpu-4")
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    await stage.rest(60)
    await make(stage, nvidia_driver("b", ALL_AT_ONCE, version=NEW))
    await stage.rest(2)
    await apply(stage, waves=[{**CANARY, "soak": "30m"}])
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert on_new(stage) == ["gpu-1"]


@on_stage(gpu_nodes=5)
async def test_they_count_for_nodes_that_an_nvidiadriver_gets_by_an_edit_of_its_selector(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, b="gpu-5", a="gpu-1 gpu-2 gpu-3 gpu-4")
    at_once = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}
    await make(stage, nvidia_driver("default", at_once, default=True), nvidia_driver("b", at_once, version=NEW))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD, NEW])
    await stage.rest(60)
    await set_driver(stage, "b", {"nodeSelector": {"pool": "a"}})
    await stage.rest(2)
    await apply(stage, waves=[{**CANARY, "soak": "30m"}])
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert on_new(stage) == ["gpu-1"]


async def turn_on(stage: Stage, mode: str) -> None:
    """Ask for another driver while upgrades are off, and turn them on a minute later."""
    await limited(stage, mode, {"autoUpgrade": False})
    await ask(stage, mode)
    await stage.rest(60)
    await limited(stage, mode, {"autoUpgrade": True})


async def raise_the_limit(stage: Stage, mode: str) -> None:
    """Ask for another driver where no node may be unavailable, and let all of them be so a minute later."""
    await limited(stage, mode, {"maxUnavailable": 0})
    await ask(stage, mode)
    await stage.rest(60)
    await limited(stage, mode, {"maxUnavailable": "100%"})


async def limited(stage: Stage, mode: str, limits: dict[str, Any]) -> None:
    if mode == NVIDIADRIVER:
        await set_driver(stage, DEFAULT, {"upgradePolicy": limits})
    else:
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": {"upgradePolicy": limits}}})


@MODES
@pytest.mark.parametrize("edit", [turn_on, raise_the_limit])
def test_they_count_after_an_edit_of_the_upgrade_policy(edit: Edit, mode: str) -> None:
    @on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await the_canary_alone_starts(stage, mode, edit)

    scenario()


@on_stage(gpu_nodes=4, upgrade={**ALL_AT_ONCE, "maxUnavailable": "25%"})
async def test_they_count_where_a_driver_is_taken_back(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.finished(NEW))
    await stage.rest(60)
    await limited(stage, "ClusterPolicy", ALL_AT_ONCE)
    await stage.rest(60)
    await stage.upgrade_to(OLD)
    await stage.rest(2)
    await apply(stage, waves=[{**CANARY, "soak": "30m"}])
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert on_new(stage, NEW) == ["gpu-1"]


@on_stage(gpu_nodes=4, upgrade={"maxUnavailable": "50%", "maxParallelUpgrades": 2})
async def test_what_holds_the_rollout_is_said_after_an_edit_too(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: on_new(stage))
    await abort(stage)
    await stage.until(lambda: rollout(stage)[1] == "Aborted")
    await stage.rest(120)
    for limit in (3, 4):
        await limited(stage, "ClusterPolicy", {"maxParallelUpgrades": limit})
        for _ in range(20):
            await stage.rest(1)
            assert (rollout(stage)[1], "TemplateSettling" in map(stage.hold, stage.states())) == ("Aborted", False)


@MODES
def test_images_that_are_being_brought_onto_nodes_go_on_after_an_edit(mode: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=4)
        slow(stage)
        await apply(stage, prestage=IMAGE)
        await ask(stage, mode)
        await stage.rest(60)
        there = [pod["metadata"]["uid"] for pod in staging_pods(stage)]
        assert len(there) == 4
        await limited(stage, mode, ALL_AT_ONCE)
        await stage.rest(60)
        assert [pod["metadata"]["uid"] for pod in staging_pods(stage)] == there

    scenario()
