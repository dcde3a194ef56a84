"""Windows of a RolloutPolicy: judged from the machines and the pods, no node starts outside, wherever its driver comes from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuward import names
from gpuward.cli.waiting import stopped
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from kubesandbox.timeloop import LoopClock
from tests.journeys.looking import condition_of, explanation_of, headline_of, looking, obey, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, set_driver
from tests.journeys.test_removed import DEFAULT, MODES, NVIDIADRIVER, PRECOMPILED, installed, remove, users
from tests.journeys.test_rolloutpolicy import apply, edit, status


def window(begins: float, ends: float, kind: str = "Allow") -> dict[str, Any]:
    """Return a window between two moments, in seconds from now."""
    start, end = (datetime.fromtimestamp(LoopClock().now() + each, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                  for each in (begins, ends))
    return {"kind": kind, "start": start, "end": end}


async def ask(stage: Stage, mode: str) -> None:
    """Ask for another driver."""
    if mode == NVIDIADRIVER:
        await set_driver(stage, DEFAULT, {"version": NEW})
    else:
        await stage.upgrade_to("575" if mode == PRECOMPILED else NEW)


def started(stage: Stage) -> list[str]:
    """Return the nodes whose upgrade has begun."""
    return [node for node, state in stage.states().items() if state in IN_PROGRESS or stage.driver(node) != OLD]


@MODES
def test_nothing_starts_before_a_window_opens_and_all_goes_on_when_it_does(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        pod = stage.run_pod("training", "gpu-1", owned=True)
        await stage.rest(10)
        (old,) = stage.drivers()
        await apply(stage, windows=[window(3600, 7200)])
        await stage.rest(5)
        before = {each["metadata"]["uid"] for each in driver_pods(stage)}
        await ask(stage, mode)
        await stage.rest(3500)
        assert (stage.cordons(), stage.drivers()) == ([], [old])
        assert {each["metadata"]["uid"] for each in driver_pods(stage)} == before
        assert pod["metadata"]["uid"] in users(stage)
        assert {stage.hold(node) for node in stage.states()} == {"WindowShut"}
        told = stage.operator.plan.holds["gpu-2"]
        assert sentence(told).startswith("the windows of the RolloutPolicy let no node start now: they open at 2026-01-01 01:")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3000)

    scenario()


@pytest.mark.parametrize("in_a_wave", [False, True])
@MODES
def test_a_removal_waits_for_a_window_too_and_goes_by_no_wave_s(mode: str, in_a_wave: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        waves = [{"name": "all", "windows": [window(0, 9000)]}] if in_a_wave else []
        await apply(stage, waves=waves, windows=[window(1800, 3600)])
        await stage.rest(5)
        before = stage.drivers()
        await remove(stage, mode)
        await stage.rest(1700)
        assert (stage.drivers(), len(driver_pods(stage))) == (before, 2)
        await stage.until(lambda: not driver_pods(stage), within=3600)

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_node_under_way_finishes_when_the_window_shuts_and_no_other_starts(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(0, 20), window(7200, 9000)])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: bool(started(stage)))
    first = started(stage)
    await stage.until(lambda: all(stage.state(node) == State.DONE and stage.driver(node) == NEW for node in first))
    await stage.rest(3600)
    assert started(stage) == first
    assert stage.cordons() == []
    told = await status_of(stage)
    assert "they open at 2026-01-01 02:" in str(told)
    condition = next(one for one in stage.policy_status()["conditions"] if one["type"] == "DriverUpgrade")
    assert condition["reason"] == "WindowShut"
    assert "they open at 2026-01-01 02:" in condition["message"]
    assert stage.policy_status()["state"] == "notReady"
    await stage.upgraded(NEW, within=9000)


@on_stage(gpu_nodes=2)
async def test_a_freeze_holds_what_a_window_allows_and_taking_it_away_lets_go(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": "* * * * *", "duration": "2m"}, window(-60, 86_400, "Deny")])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    assert started(stage) == []
    told = await explanation_of(stage, "gpu-1")
    assert [remedy.do for remedy in told.remedies] == ["upgrade this node now", "take the windows from the RolloutPolicy"]
    assert "all nodes start" in told.remedies[1].risk
    for command in told.remedies[1].commands:
        await obey(stage, command)
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=2)
async def test_a_node_that_was_not_ready_for_a_moment_keeps_to_the_windows(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(-60, 86_400, "Deny")])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "WindowShut")
    loaded = stage.sandbox.machine("gpu-1").loaded_at
    for seconds in (3, 600):
        stage.sandbox.set_node_ready("gpu-1", False)
        await stage.until(lambda: stage.hold("gpu-1") == "NodeNotReady")
        await stage.rest(seconds)
        stage.sandbox.set_node_ready("gpu-1", True)
        await stage.rest(300)
        assert (started(stage), stage.hold("gpu-1"), stage.sandbox.machine("gpu-1").loaded_at) == ([], "WindowShut", loaded)


@on_stage(gpu_nodes=3)
async def test_a_node_that_somebody_asks_for_by_hand_does_not_wait_for_a_window(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(86_400, 90_000)])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    await stage.user.patch_merge(resources.NODES, "gpu-2", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
    await stage.until(lambda: stage.driver("gpu-2") == NEW and stage.state("gpu-2") == State.DONE)
    await stage.rest(600)
    assert started(stage) == ["gpu-2"]


@on_stage(gpu_nodes=2)
async def test_a_window_that_cannot_be_followed_is_shut_and_told(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": "0 22 * * *", "duration": "6h", "timeZone": "Mars/Olympus"}])
    await stage.rest(5)
    assert status(stage)["state"] == "invalid"
    message = str(status(stage)["conditions"])
    assert "spec.windows[0].timeZone" in message
    assert "Mars/Olympus" in message
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    assert started(stage) == []
    assert any("Mars/Olympus" in problem for problem in (await status_of(stage))["problems"])
    assert "Mars/Olympus" in await headline_of(stage)
    await edit(stage, windows=[])
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=2)
async def test_a_new_operator_keeps_to_the_windows(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(3600, 7200)])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    await stage.restart_operator()
    await stage.rest(3000)
    assert started(stage) == []
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=2)
async def test_windows_that_never_open_are_told_as_a_stop_and_others_as_a_wait(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(3600, 7200)])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    async with looking(stage) as picture:
        assert stopped(picture) == ""
    assert await headline_of(stage) == "ClusterPolicy cluster-policy: 0 of 2 nodes up to date"
    assert (await status_of(stage))["groups"] == [{"group": "waiting", "nodes": 2, "reasons": {"WindowShut": 2}}]
    (event,) = [each for each in stage.sandbox.store.list("events") if each["reason"] == "GPUDriverUpgradeWindowShut"]
    assert event["type"] == "Normal"
    await edit(stage, windows=[window(-7200, -3600)])
    await stage.rest(60)
    async with looking(stage) as picture:
        assert stopped(picture).startswith("WindowShut: 0 of 2 nodes up to date")
        assert "they never open: see spec.windows" in stopped(picture)
        assert await headline_of(stage) == ("ClusterPolicy cluster-policy: 0 of 2 nodes up to date; the rollout has stopped: its "
                                            "windows never open")


@MODES
def test_no_node_starts_that_would_not_be_back_before_the_window_shuts(mode: str) -> None:
    """An upgrade takes minutes, as the nodes remember from the rollout before; the first window is open for 20 seconds."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        (now,) = stage.drivers()
        await apply(stage, windows=[window(-60, 20), window(7200, 7230), window(9000, 18000)], windowFit="P90")
        await stage.rest(5)
        await go_back(stage, mode)
        await stage.rest(8900)
        assert stage.drivers() == [now]
        assert stage.cordons() == []
        told = sentence(stage.operator.plan.holds["gpu-1"])
        assert "none that comes" not in told
        assert told.startswith("the windows of the RolloutPolicy let no node start now: the next that is long enough for an "
                               "upgrade, as nine of ten take up to "), told
        assert ", opens at 2026-01-01 02:" in told, "a shorter one opened before that"
        assert {stage.hold(node) for node in stage.states()} == {"WindowShut"}
        await stage.until(lambda: stage.drivers() == [old] and stage.all_are(State.DONE), within=3600)

    scenario()


async def go_back(stage: Stage, mode: str) -> None:
    """Ask for the driver of before."""
    if mode == NVIDIADRIVER:
        await set_driver(stage, DEFAULT, {"version": OLD})
    else:
        await stage.upgrade_to("580" if mode == PRECOMPILED else OLD)


@on_stage(gpu_nodes=2)
async def test_windows_of_which_none_is_long_enough_are_told_of(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await apply(stage, windows=[window(0, 20), window(60, 80)], windowFit="P90")
    await stage.rest(1)
    await stage.upgrade_to(OLD)
    await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"WindowShut"})
    told = sentence(stage.operator.plan.holds["gpu-1"])
    assert "too soon for an upgrade, as nine of ten take up to" in told
    assert told.endswith("none that comes is long enough")
    assert "the rollout has stopped: no window is long enough" in await headline_of(stage)


@MODES
def test_when_windows_shut_the_nodes_that_something_else_held_wait_for_the_next(mode: str) -> None:
    """Nothing else happens at that moment that would have the operator look."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("train", node="gpu-1", max_unavailable=0)
        await stage.cordon("gpu-2")
        await apply(stage, windows=[window(0, 1800), window(7200, 9000)])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks")
        await stage.rest(3600)
        assert stage.hold("gpu-1") == "WindowShut"
        assert condition_of(stage)[:2] == ("False", "WindowShut")

    scenario()
