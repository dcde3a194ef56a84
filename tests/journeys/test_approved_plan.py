"""A rollout keeps to the plan that somebody saved and approved of: judged from which nodes start."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest

from gpuward import names
from gpuward.cli.savedplan import SavedPlan, Target, approve_plan, differing, read_plan, saved_plan, write_plan
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from tests.journeys.looking import explanation_of, told_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_plan import plan_of
from tests.journeys.test_removed import COMPILED, DEFAULT, MODES, NVIDIADRIVER, PRECOMPILED, installed
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_waves import approve
from tests.journeys.test_windows import ask

HOUR = 3600
NESTED = '{"x":' + "[" * 20_000


def nested_plan() -> str:
    return json.dumps({"digest": "0", "plan": base64.b64encode(zlib.compress(NESTED.encode())).decode()})


async def approved(stage: Stage, tmp_path: Path, version: str) -> SavedPlan:
    """Save the plan for another version before it is asked for, and approve of it."""
    plan, path = saved_plan(await plan_of(stage, version)), tmp_path / "plan.json"
    write_plan(plan, Target(path, force=True))
    assert read_plan("--check", path) == plan
    said = [line async for line in approve_plan(stage.user, path, "", dry_run=False)]
    assert all(line.endswith("nodes start only as it says") for line in said)
    return plan


def started(stage: Stage) -> list[str]:
    return [node for node, state in stage.states().items() if state in IN_PROGRESS or stage.driver(node) != OLD]


@MODES
def test_a_rollout_that_goes_as_planned_is_held_by_nothing_and_another_driver_is(mode: str, tmp_path: Path) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        await apply(stage, waves=[{"name": "canary", "nodes": 1}])
        await stage.rest(10)
        (old,) = stage.drivers()
        await approved(stage, tmp_path, "575" if mode == PRECOMPILED else NEW)
        stage.run_pod("training", "gpu-1", owned=True)
        await ask(stage, mode)
        await stage.restart_operator()
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=2 * HOUR)
        (new,) = stage.drivers()
        another = "580" if mode == PRECOMPILED else "575.57.08"
        await (set_driver(stage, DEFAULT, {"version": another}) if mode == NVIDIADRIVER else stage.upgrade_to(another))
        await stage.until(lambda: stage.hold("gpu-1") == "PlanDiffers")
        await stage.rest(HOUR)
        assert (stage.drivers(), stage.cordons()) == ([new], [])
        told = f"node gpu-1 would get another driver ({another}, not {'575' if mode == PRECOMPILED else NEW})"
        assert told in sentence(stage.operator.plan.holds["gpu-1"])
        assert await told_of(stage, "gpu-1", "TURN") == "", "no node has a turn while none may start"
        await approved(stage, tmp_path, "")
        await stage.until(lambda: new not in stage.drivers() and stage.all_are(State.DONE), within=2 * HOUR)

    scenario()


def test_another_order_other_limits_and_other_nodes_are_told_apart(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await installed(stage, COMPILED)
        await apply(stage, waves=[{"name": "canary", "nodes": 1}])
        await stage.rest(10)
        plan = await approved(stage, tmp_path, NEW)
        (first, *_) = differing(plan, saved_plan(await plan_of(stage, "575.57.08")))
        assert first == f"the ClusterPolicy: node gpu-1 would get another driver (575.57.08, not {NEW})"
        await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 2)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "PlanDiffers")
        assert "maxParallelUpgrades is 2, and was the default" in sentence(stage.operator.plan.holds["gpu-1"])
        assert any("maxParallelUpgrades" in line for line in differing(plan, saved_plan(await plan_of(stage))))
        await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 1)
        await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == State.DONE, within=HOUR)
        await edit(stage, waves=[])
        await stage.until(lambda: "PlanDiffers" in {stage.hold(node) for node in ("gpu-2", "gpu-3", "gpu-4")})
        await stage.until(lambda: all(state not in IN_PROGRESS for state in stage.states().values()), within=HOUR)
        there = stage.drivers()
        await stage.rest(HOUR)
        assert (OLD in there, stage.cordons()) == (True, [])
        await edit(stage, waves=[{"name": "canary", "nodes": 1}])
        await stage.upgraded(NEW, within=2 * HOUR)

    scenario()


@MODES
def test_a_plan_with_a_node_that_somebody_asks_for_is_followed_to_its_end(mode: str, tmp_path: Path) -> None:
    """That node starts before its wave may, and takes none of the room that the plan gives to others."""
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await apply(stage, waves=[{"name": "canary", "nodes": 2, "approval": "Required"}])
        await stage.rest(10)
        await approved(stage, tmp_path, "")
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-4") == "PlanDiffers")
        await stage.user.patch_merge(
            resources.NODES, "gpu-4", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
        await stage.rest(10)
        plan = await approved(stage, tmp_path, "")
        assert [node.name for rollout in plan.rollouts for node in rollout.nodes if node.wave] == ["gpu-1", "gpu-4"]
        await stage.until(lambda: stage.hold("gpu-2") == stage.hold("gpu-3") == "ApprovalRequired", within=HOUR)
        assert [node for node in sorted(stage.states()) if stage.driver(node) != old] == ["gpu-1", "gpu-4"]
        await approve(stage)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=2 * HOUR)

    scenario()


@pytest.mark.parametrize("which", [0, 1])
@MODES
def test_whoever_obeys_explain_has_a_rollout_that_differs_go_on(mode: str, which: int, tmp_path: Path) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await approved(stage, tmp_path, "")
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-2") == "PlanDiffers")
        remedy = (await explanation_of(stage, "gpu-2")).remedies[which - 2]
        if which:
            (command,) = remedy.commands
            _, _, kind, name, key = command.split()
            of = resources.NVIDIA_DRIVERS if kind == "nvidiadriver" else resources.CLUSTER_POLICIES
            await stage.user.patch_merge(of, name, {"metadata": {"annotations": {key.removesuffix("-"): None}}})
        else:
            option = " --driver default" if mode == NVIDIADRIVER else ""
            assert remedy.commands == ("gpuward plan --save new-plan.json", f"gpuward approve --plan new-plan.json{option}")
            await approved(stage, tmp_path, "")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=2 * HOUR)

    scenario()


@pytest.mark.parametrize(("mode", "started", "nodes"), [
    (COMPILED, True, 2), (COMPILED, False, 2), (PRECOMPILED, True, 2), (NVIDIADRIVER, True, 2), (NVIDIADRIVER, False, 2),
    (NVIDIADRIVER, True, 4)])
def test_the_driver_of_the_plan_can_be_asked_for_again(mode: str, started: bool, nodes: int, tmp_path: Path) -> None:
    """Where a node has started with it, and where the plan was to keep what the nodes have; four have two operating systems."""
    @on_stage(gpu_nodes=nodes)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        planned = ("575" if mode == PRECOMPILED else NEW) if started else old
        another = "570" if mode == PRECOMPILED else "575.57.08"
        await approved(stage, tmp_path, planned if started else "")
        await (set_driver(stage, DEFAULT, {"version": another}) if mode == NVIDIADRIVER else stage.upgrade_to(another))
        await stage.until(lambda: stage.hold("gpu-2") == "PlanDiffers")
        first, *_ = (await explanation_of(stage, "gpu-2")).remedies
        kind, spec = ("nvidiadriver default", "") if mode == NVIDIADRIVER else ("clusterpolicy cluster-policy", '"driver":{')
        body = f'{{"spec":{{{spec}"version":"{planned}"}}}}{"}" * bool(spec)}'
        assert first.commands == (f"kubectl patch {kind} --type merge -p '{body}'",), first
        of = resources.NVIDIA_DRIVERS if mode == NVIDIADRIVER else resources.CLUSTER_POLICIES
        await stage.user.patch_merge(of, kind.split()[1], json.loads(body))
        await stage.until(lambda: stage.all_are(State.DONE) and (not started or old not in stage.drivers()), within=2 * HOUR)
        assert stage.hold("gpu-2") == ""

    scenario()


@on_stage(gpu_nodes=2)
async def test_an_annotation_that_is_no_plan_lets_no_node_start(stage: Stage) -> None:
    await stage.installed()
    for text in ("x", '{"digest":"0","plan":"eJw="}', NESTED, nested_plan()):
        body = {"metadata": {"annotations": {names.APPROVED_PLAN: text}}}
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", body)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "PlanDiffers")
    await stage.rest(600)
    assert started(stage) == []
    await stage.user.patch_merge(
        resources.CLUSTER_POLICIES, "cluster-policy", {"metadata": {"annotations": {names.APPROVED_PLAN: None}}})
    await stage.upgraded(NEW)


def test_nodes_that_go_to_another_nvidiadriver_get_no_other_driver_than_was_planned(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver(DEFAULT, default=True))
        await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
        await set_driver(stage, DEFAULT, {"upgradePolicy": {"autoUpgrade": False}})
        await label_pools(stage, a="gpu-1 gpu-2 gpu-3 gpu-4")
        await make(stage, nvidia_driver("a", version=NEW))
        await stage.rest(30)
        await approved(stage, tmp_path, "")
        await set_driver(stage, "a", {"version": "575.57.08"})
        await stage.rest(30)
        await set_driver(stage, DEFAULT, {"upgradePolicy": {"autoUpgrade": True}})
        await stage.until(lambda: stage.hold("gpu-1") == "PlanDiffers")
        assert f"node gpu-1 would get another driver (575.57.08, not {NEW})" in sentence(stage.operator.plan.holds["gpu-1"])
        await stage.rest(HOUR)
        assert stage.drivers() == [OLD]
        await set_driver(stage, "a", {"version": NEW})
        await stage.upgraded(NEW, within=2 * HOUR)

    scenario()


@on_stage(gpu_nodes=4)
async def test_an_annotation_that_is_no_plan_stops_no_other_nvidiadriver(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, b="gpu-1 gpu-2")
    await make(stage, nvidia_driver("b"), nvidia_driver(DEFAULT, default=True))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    for text in (NESTED, nested_plan()):
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "b", {"metadata": {"annotations": {names.APPROVED_PLAN: text}}})
        await stage.rest(10)
    for name in (DEFAULT, "b"):
        await set_driver(stage, name, {"version": NEW})
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-3", "gpu-4")] == [NEW, NEW], within=HOUR)
    assert [stage.driver(node) for node in ("gpu-1", "gpu-2")] == [OLD, OLD]
    assert "is none that gpuward wrote" in sentence(stage.operator.plan.holds["gpu-1"])
