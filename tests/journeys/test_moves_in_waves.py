"""Nodes that go to another NVIDIADriver keep to the waves of where they go: judged from which drivers are loaded."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from tests.journeys.looking import headline_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import ALL_AT_ONCE, CANARY, abort, approve, on_new, promote, resume
from tests.journeys.test_windows import window

NODES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")


async def going(stage: Stage, how: str, more: dict[str, Any] | None = None, **canary: Any) -> None:
    """Let all nodes of one NVIDIADriver become those of another, which has a newer driver, in waves."""
    await going_under(stage, how, waves=[{**CANARY, **canary}], **(more or {}))


async def going_under(stage: Stage, how: str, **settings: Any) -> None:
    """Let all nodes of one NVIDIADriver become those of another, which has a newer driver, with settings of the rollout."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, b=" ".join(NODES))
    await make(stage, nvidia_driver("b", ALL_AT_ONCE), nvidia_driver("default", ALL_AT_ONCE, default=True, version=NEW))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    stage.run_pod("training", "gpu-1", owned=True)
    await apply(stage, **settings)
    await stage.rest(10)
    if how == "deleted":
        await stage.user.delete(resources.NVIDIA_DRIVERS, "b")
    else:
        await set_driver(stage, "b", {"nodeSelector": {"pool": "nobody"}})


HOW = pytest.mark.parametrize("how", ["selector", "deleted"])


@HOW
def test_after_the_canary_the_others_wait_for_approval(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await going(stage, how, approval="Required")
        await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired", within=1800)
        await stage.restart_operator()
        await stage.rest(3600)
        assert (on_new(stage), stage.cordons()) == (["gpu-1"], [])
        assert "wave canary waits for approval" in await headline_of(stage)
        first, _ = await approve(stage, driver="default")
        assert "approved of wave canary" in first
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)

    scenario()


@HOW
def test_after_the_canary_the_others_wait_for_its_soak_unless_somebody_promotes(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await going(stage, how, soak="2h")
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking", within=1800)
        await stage.rest(3600)
        assert on_new(stage) == ["gpu-1"]
        assert "promoted from wave canary" in (await promote(stage, "default"))[0]
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)

    scenario()


@HOW
def test_an_abort_where_they_go_lets_no_other_node_go_there(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await going(stage, how, soak="10m")
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking", within=1800)
        assert "aborted" in (await abort(stage, "default"))[0]
        await stage.rest(3600)
        assert (on_new(stage), stage.cordons()) == (["gpu-1"], [])
        await resume(stage, "default")
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)

    scenario()


@on_stage(gpu_nodes=8)
async def test_an_approval_of_the_driver_that_runs_there_counts_for_nodes_that_come_later(stage: Stage) -> None:
    """All these nodes have the same operating system, and so the same driver."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, b="gpu-1 gpu-2")
    await make(stage, nvidia_driver("b", ALL_AT_ONCE), nvidia_driver("default", ALL_AT_ONCE, default=True))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(10)
    await set_driver(stage, "b", {"version": NEW})
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired", within=1800)
    await approve(stage, driver="b")
    await stage.until(lambda: on_new(stage) == ["gpu-1", "gpu-2"] and stage.all_are(State.DONE), within=1800)
    await label_pools(stage, b="gpu-6 gpu-7")
    await stage.until(lambda: on_new(stage) == ["gpu-1", "gpu-2", "gpu-6", "gpu-7"] and stage.all_are(State.DONE), within=3600)


@on_stage(gpu_nodes=4)
async def test_nodes_of_an_nvidiadriver_wait_for_none_that_are_yet_to_come(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, b="gpu-3 gpu-4")
    await make(stage, nvidia_driver("b", ALL_AT_ONCE), nvidia_driver("default", {"autoUpgrade": False}, default=True))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    await apply(stage, waves=[{"name": "canary", "nodes": 2}])
    await label_pools(stage, b="gpu-1 gpu-2")
    await stage.rest(10)
    await set_driver(stage, "b", {"version": NEW})
    await stage.until(lambda: on_new(stage) == ["gpu-3", "gpu-4"], within=3600)
    await set_driver(stage, "default", {"upgradePolicy": {**ALL_AT_ONCE, "autoUpgrade": True}})
    await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)


@HOW
def test_nodes_go_in_the_windows_of_their_waves_there(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await going(stage, how, windows=[window(1800, 3600)])
        await stage.rest(1700)
        assert (on_new(stage), stage.hold("gpu-1")) == ([], "WindowShut")
        told = sentence(stage.operator.plan.holds["gpu-1"])
        assert told.startswith("the windows of wave canary let none of its nodes start now")
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=1800)

    scenario()


@HOW
def test_nodes_go_once_only_the_windows_of_others_are_shut(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await going(stage, how, {"windows": [window(7200, 9000)]}, windows=[window(0, 3600)])
        await stage.rest(1800)
        assert on_new(stage) == ["gpu-1"]
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=9000)

    scenario()


def most_under_way(stage: Stage) -> dict[int, int]:
    """Return how many nodes were under way at once since the limits are watched, at most, by how many were over by then."""
    under_way: set[str] = set()
    over: set[str] = set()
    most: dict[int, int] = {}
    for moment in stage.history:
        if moment.state in IN_PROGRESS:
            under_way.add(moment.node)
        elif moment.node in under_way:
            under_way.remove(moment.node)
            over.add(moment.node)
        most[len(over)] = max(most.get(len(over), 0), len(under_way))
    return most


@HOW
def test_growth_begins_with_the_driver_that_they_get(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await going_under(stage, how, growth={"start": 1, "factor": 2})
        stage.history.clear()
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)
        most = most_under_way(stage)
        assert (most[0], most[1], max(most.values())) == (1, 2, 2)

    scenario()


@on_stage(gpu_nodes=7)
async def test_growth_does_not_go_by_an_earlier_rollout_where_they_come_from(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True), nvidia_driver("b", ALL_AT_ONCE, version="600.10.01"))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    await apply(stage, growth={"start": 1, "factor": 2})
    await set_driver(stage, "default", {"version": NEW})
    await stage.upgraded()
    stage.history.clear()
    await label_pools(stage, b=" ".join(NODES))
    await stage.until(lambda: all(stage.driver(node) == "600.10.01" for node in NODES) and stage.all_are(State.DONE), within=3600)
    most = most_under_way(stage)
    assert (most[0], most[1], max(most.values())) == (1, 2, 2)


@HOW
def test_no_notice_is_given_in_a_window_that_shuts_before_its_end(how: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        windows = [window(0, 600), window(3600, 7200)]
        await going(stage, how, {"windows": windows, "notice": {"before": "15m"}})
        await stage.rest(300)
        assert names.NOTICE not in stage.node("gpu-1")["metadata"]["annotations"]
        assert "too soon for a notice of 15 min" in sentence(stage.operator.plan.holds["gpu-1"])
        await stage.until(lambda: names.NOTICE in stage.node("gpu-1")["metadata"]["annotations"], within=3600)
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=3600)

    scenario()
