"""Nodes that wait until nobody uses their GPUs: judged from the pods, nobody is evicted before the time is up."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from gpuward.report.when import When
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.timeloop import LoopClock
from tests.journeys.looking import condition_of, explanation_of, obey, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_plan import plan_of
from tests.journeys.test_removed import MODES, installed, users
from tests.journeys.test_rolloutpolicy import apply, edit, status
from tests.journeys.test_waves import abort, approve
from tests.journeys.test_windows import ask, window

HOUR = 3600


def begun(stage: Stage, old: str = OLD) -> list[str]:
    return [node for node, state in stage.states().items() if state in IN_PROGRESS or stage.driver(node) != old]


@MODES
def test_idle_nodes_start_and_nobody_is_evicted_before_the_time_is_up(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=3)
        pod = stage.run_pod("training", "gpu-1", owned=True)
        await apply(stage, opportunistic={"idleFor": "5m", "until": "2h"})
        await stage.rest(10)
        (old,) = stage.drivers()
        begins = LoopClock().now()
        await ask(stage, mode)
        await stage.rest(280)
        assert begun(stage, old) == []
        idle = ("gpu-2", "gpu-3")
        await stage.until(lambda: all(stage.driver(node) != old and stage.state(node) == State.DONE for node in idle))
        assert stage.hold("gpu-1") == "IdleAwaited"
        await stage.rest(begins + 2 * HOUR - 60 - LoopClock().now())
        assert pod["metadata"]["uid"] in users(stage)
        assert not stage.cordoned("gpu-1")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)

    scenario()


@on_stage(gpu_nodes=3)
async def test_the_plan_has_nodes_that_wait_to_be_idle_among_those_whose_turn_comes(stage: Stage) -> None:
    """They have no place: whoever is idle first goes first."""
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    await apply(stage, opportunistic={"idleFor": "5m", "until": "2h"})
    await stage.rest(10)
    assert {(one.when, one.place, one.reason) for one in (await plan_of(stage, NEW)).nodes} == {(When.NEXT, 0, "IdleAwaited")}
    await stage.upgrade_to(NEW)
    await stage.rest(320)
    (first, second, third) = (await plan_of(stage)).nodes
    assert [first.when, second.when, third.when] == [When.UNDER_WAY, When.NEXT, When.NEXT]
    assert [(one.place, one.reason) for one in (second, third)] == [(2, "UnavailableLimit"), (0, "IdleAwaited")]
    assert third.node == "gpu-1"


@MODES
def test_a_node_of_a_later_wave_has_all_its_time_from_when_its_wave_may_start(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=3)
        pod = stage.run_pod("training", "gpu-2", owned=True)
        await apply(stage, waves=[{"name": "canary", "nodes": 1, "soak": "3h"}], opportunistic={"idleFor": "5m", "until": "2h"})
        await stage.rest(10)
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking", within=1800)
        opens = stage.operator.plan.holds["gpu-2"].until
        assert opens is not None
        await stage.restart_operator()
        await stage.until(lambda: stage.hold("gpu-2") == "IdleAwaited", within=4 * HOUR)
        assert LoopClock().now() >= opens
        await stage.rest(opens + 2 * HOUR - 60 - LoopClock().now())
        assert pod["metadata"]["uid"] in users(stage)
        assert stage.driver("gpu-3") != old, "it was idle, and waited for nothing"
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)

    scenario()


@on_stage(gpu_nodes=1)
async def test_a_pod_that_comes_as_a_node_starts_whose_wave_has_just_opened_is_not_evicted(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{"name": "nobody", "nodeSelector": {"no": "node"}, "approval": "Required"}],
                opportunistic={"idleFor": "1m", "until": "6h"})
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.rest(HOUR)
    assert stage.hold("gpu-1") == "ApprovalRequired"
    found: list[str] = []

    def race(event: object) -> None:
        if stage.cordoned("gpu-1") and not found:
            found.append(stage.run_pod("late", "gpu-1", owned=True)["metadata"]["uid"])

    stage.sandbox.store.subscribe(race)
    await approve(stage)
    await stage.until(lambda: bool(found))
    await stage.rest(HOUR)
    assert found[0] in users(stage)
    assert (stage.cordons(), stage.drivers()) == ([], [OLD])
    await stage.upgraded(NEW, within=6 * HOUR)


@on_stage(gpu_nodes=1)
async def test_a_node_whose_rollout_was_aborted_is_not_said_to_start(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    await apply(stage, opportunistic={"idleFor": "5m", "until": "2h"})
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "IdleAwaited")
    await abort(stage)
    await stage.until(lambda: stage.hold("gpu-1") == "Aborted", within=5)


@on_stage(gpu_nodes=2)
async def test_what_a_node_waits_for_is_told_everywhere_and_what_would_help(stage: Stage) -> None:
    await stage.installed()
    for node in ("gpu-1", "gpu-2"):
        stage.run_pod(f"training-{node}", node, owned=True)
    await apply(stage, opportunistic={"idleFor": "15m", "until": "72h"})
    await stage.rest(10)
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    text = sentence(stage.operator.plan.holds["gpu-1"])
    assert text.startswith("starts once no GPU pod has used it for 15m (now pod ")
    assert "training-gpu-1 does, 1 in all); from 2026-01-04 00:" in text
    told = await status_of(stage)
    assert told["groups"] == [{"group": "waiting", "nodes": 2, "reasons": {"IdleAwaited": 2}}]
    assert text in str(told)
    assert condition_of(stage)[1] == "IdleAwaited"
    explained = await explanation_of(stage, "gpu-1")
    assert [remedy.do for remedy in explained.remedies] == ["upgrade this node now", "take opportunistic from the RolloutPolicy"]
    assert explained.remedies[0].commands == (f"kubectl annotate node gpu-1 {names.UPGRADE_REQUESTED}=true --overwrite",)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == State.DONE)
    await stage.rest(300)
    assert stage.driver("gpu-2") == OLD
    for command in (await explanation_of(stage, "gpu-2")).remedies[1].commands:
        await obey(stage, command)
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=1)
async def test_a_node_is_idle_from_the_end_of_its_last_pod_on(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, opportunistic={"idleFor": "10m", "until": "24h"})
    await stage.upgrade_to(NEW)
    for number in range(3):
        pod = stage.run_pod(f"job-{number}", "gpu-1", owned=True)
        await stage.rest(400)
        stage.sandbox.store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        await stage.rest(500)
        assert begun(stage) == []
    await stage.upgraded(NEW, within=1200)


@on_stage(gpu_nodes=1)
async def test_a_new_operator_waits_anew(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, opportunistic={"idleFor": "10m", "until": "24h"})
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.rest(500)
    await stage.kill_operator()
    pod = stage.run_pod("job", "gpu-1", owned=True)
    await stage.rest(60)
    stage.sandbox.store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    await stage.rest(60)
    await stage.restart_operator()
    await stage.rest(590)
    assert begun(stage) == []
    await stage.upgraded(NEW, within=1200)


@on_stage(gpu_nodes=1)
async def test_a_pod_that_comes_as_the_node_starts_is_not_evicted(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, opportunistic={"idleFor": "1m", "until": "6h"})
    await stage.rest(5)
    found: list[str] = []

    def race(event: object) -> None:
        if stage.cordoned("gpu-1") and not found:
            found.append(stage.run_pod("late", "gpu-1", owned=True)["metadata"]["uid"])

    stage.sandbox.store.subscribe(race)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: bool(found))
    await stage.rest(HOUR)
    assert found[0] in users(stage)
    assert (stage.cordons(), stage.drivers()) == ([], [OLD])
    await stage.upgraded(NEW, within=6 * HOUR)


@on_stage(gpu_nodes=1)
async def test_a_rollout_that_was_paused_and_one_with_windows_keep_to_it(stage: Stage) -> None:
    await stage.installed()
    pod = stage.run_pod("training", "gpu-1", owned=True)
    await apply(stage, opportunistic={"idleFor": "1m", "until": "1h"}, windows=[window(3 * HOUR, 4 * HOUR)])
    await stage.rest(5)
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(600)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.rest(2 * HOUR)
    assert stage.hold("gpu-1") == "WindowShut"
    assert pod["metadata"]["uid"] in users(stage)
    await stage.upgraded(NEW, within=2 * HOUR)


@on_stage(gpu_nodes=1)
async def test_settings_that_cannot_be_followed_start_nothing_and_are_told(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, opportunistic={"idleFor": "2h", "until": "1h"})
    await stage.rest(5)
    assert status(stage)["state"] == "invalid"
    assert "spec.opportunistic.idleFor" in str(status(stage)["conditions"])
    await stage.upgrade_to(NEW)
    await stage.rest(300)
    assert stage.drivers() == [OLD]
    await edit(stage, opportunistic=None)
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=1)
async def test_images_are_brought_while_a_node_waits_until_it_is_idle(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.pull_seconds = lambda image: 300.0
    await apply(stage, prestage={"mode": "Image"}, opportunistic={"idleFor": "1m", "until": "6h"})
    await stage.rest(5)
    stage.run_pod("first", "gpu-1", owned=True)
    await stage.upgrade_to(NEW)
    await stage.rest(1200)
    assert (stage.hold("gpu-1"), stage.pods(names.STAGING_APP)) == ("IdleAwaited", [])
    await stage.user.delete(resources.PODS, "first", WORKLOAD_NAMESPACE)
    await stage.until(lambda: stage.state("gpu-1") in IN_PROGRESS, within=120)
