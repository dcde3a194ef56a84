"""Nodes whose pods cannot be moved: judged from the world, others go on, and no driver goes from under a pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuward import names
from gpuward.cli.nodes import retry_nodes, skip_nodes
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of, status_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_removed import COMPILED, MODES, NVIDIADRIVER, installed, users
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_windows import ask

HOUR = 3600


async def unending(stage: Stage, mode: str, nodes: tuple[str, ...] = ("gpu-1",), waves: Sequence[Any] = (), out: int = 1,
                   **rules: Any) -> str:
    """Run pods that a finalizer keeps, let evictions take as long as they want, and ask for another driver."""
    await installed(stage, mode, out=out)
    if mode == NVIDIADRIVER:
        body = {"spec": {"upgradePolicy": {"podDeletion": {"timeoutSeconds": 0}}}}
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", body)
    else:
        await stage.patch_policy("driver/upgradePolicy/podDeletion", {"timeoutSeconds": 0})
    for node in nodes:
        pod = stage.run_pod(f"training-{node}", node, owned=True)
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        await stage.user.patch_merge(resources.PODS, name, {"metadata": {"finalizers": ["example.com/kept"]}}, namespace)
    await apply(stage, undrainable={"after": "20m", **rules}, waves=list(waves))
    await stage.rest(10)
    (old,) = stage.drivers()
    await ask(stage, mode)
    return old


async def free(stage: Stage, node: str) -> None:
    for pod in stage.workload_pods(node=node):
        await stage.user.patch_merge(
            resources.PODS, pod["metadata"]["name"], {"metadata": {"finalizers": None}}, pod["metadata"]["namespace"])


@MODES
def test_a_node_that_is_skipped_serves_on_and_the_others_are_upgraded(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        old = await unending(stage, mode, behaviour="Skip")
        await stage.until(lambda: stage.hold("gpu-1") == "Undrainable", within=2 * HOUR)
        assert (stage.driver("gpu-1"), stage.cordoned("gpu-1")) == (old, False)
        await stage.restart_operator()
        others = ("gpu-2", "gpu-3")
        await stage.until(lambda: all(stage.driver(node) != old and stage.state(node) == State.DONE for node in others))
        await stage.rest(2 * HOUR)
        assert (stage.driver("gpu-1"), stage.cordons(), stage.hold("gpu-1")) == (old, [], "Undrainable")
        await free(stage, "gpu-1")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=HOUR)

    scenario()


@pytest.mark.parametrize(("behaviour", "reason"), [
    ("Skip", "Undrainable"), ("Quarantine", "Quarantined"), ("Hold", "Evicting")])
def test_who_asks_about_a_node_with_pods_that_do_not_end_is_told_what_would_help(behaviour: str, reason: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await unending(stage, COMPILED, behaviour=behaviour)
        await stage.until(lambda: stage.hold("gpu-1") == reason, within=2 * HOUR)
        await stage.rest(45)
        first, *others = (await explanation_of(stage, "gpu-1")).remedies
        assert "finalizer example.com/kept keeps it until whoever set it takes it off" in first.do
        assert first.commands[0].startswith("kubectl describe pod ")
        commands = [command for remedy in others for command in remedy.commands]
        assert commands == ([] if behaviour == "Hold" else ["gpuward retry gpu-1", "gpuward skip gpu-1"])
        await free(stage, "gpu-1")
        await stage.until(lambda: stage.all_are(State.DONE), within=HOUR)

    scenario()


@pytest.mark.parametrize(("after", "behaviour", "helps"), [
    ("1m", "Quarantine", False), ("1m", "Skip", False), ("1m", "Hold", True), ("10m", "Quarantine", True)])
def test_pods_of_a_node_that_is_given_up_before_are_not_said_to_be_deleted(after: str, behaviour: str, helps: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("inference", 1, node="gpu-1", max_unavailable=0)
        await apply(stage, undrainable={"after": after, "behaviour": behaviour})
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks")
        proposed = [one.do for one in (await explanation_of(stage, "gpu-1")).remedies]
        assert any("killAtDeadline" in do for do in proposed) is helps
        await edit(stage, killAtDeadline=True)
        await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
        notes = " ".join((await explanation_of(stage, "gpu-1")).notes)
        assert ("killAtDeadline: false" in notes) is helps
        await stage.rest(600)
        assert (stage.driver("gpu-1") == NEW) is helps

    scenario()


@MODES
def test_a_quarantined_node_keeps_driver_and_cordon_and_the_others_go_on(mode: str) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        old = await unending(stage, mode, ("gpu-1", "gpu-2"), behaviour="Quarantine", maxQuarantined=1)
        pods = users(stage)

        def inside() -> list[str]:
            return [node for node in ("gpu-1", "gpu-2") if stage.hold(node) == "Quarantined"]

        await stage.until(inside, within=2 * HOUR)
        (first,) = inside()
        assert (stage.driver(first), stage.cordoned(first)) == (old, True)
        await stage.restart_operator()
        others = ("gpu-3", "gpu-4")
        await stage.until(lambda: all(stage.driver(node) != old and stage.state(node) == State.DONE for node in others))
        await stage.rest(2 * HOUR)
        assert inside() == [first]
        assert len(stage.cordons()) == 2, "one in quarantine, and one that holds its slot"
        assert users(stage) == pods
        assert {stage.driver(node) for node in ("gpu-1", "gpu-2")} == {old}
        told = await status_of(stage)
        assert {"group": "held", "nodes": 1, "reasons": {"Quarantined": 1}} in told["groups"]
        for node in ("gpu-1", "gpu-2"):
            await free(stage, node)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=HOUR)
        assert stage.cordons() == []

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_person_takes_a_node_out_of_quarantine(stage: Stage) -> None:
    await unending(stage, COMPILED, behaviour="Quarantine")
    await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=2 * HOUR)
    (said,) = [line async for line in retry_nodes(stage.user, ["gpu-1"], dry_run=False)]
    assert said.startswith("gpu-1 is tried again, after its pods could not be moved: after 1200 s these were still there: ")
    await stage.until(lambda: stage.hold("gpu-1") == "Evicting", within=HOUR)
    await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=2 * HOUR)
    (said,) = [line async for line in skip_nodes(stage.user, ["gpu-1"], undo=False, dry_run=False)]
    assert "no driver upgrade of it starts until" in said
    await stage.until(lambda: stage.hold("gpu-1") == "Skipped")
    assert (stage.driver("gpu-1"), stage.cordons()) == (OLD, [])


@on_stage(gpu_nodes=2)
async def test_the_deleted_annotation_of_a_quarantined_node_costs_no_driver_and_leaves_no_cordon(stage: Stage) -> None:
    await unending(stage, COMPILED, behaviour="Quarantine")
    await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=2 * HOUR)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})
    await stage.until(lambda: stage.hold("gpu-1") == "Evicting", within=60)
    await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=2 * HOUR)
    assert stage.driver("gpu-1") == OLD
    await free(stage, "gpu-1")
    await stage.upgraded(NEW, within=HOUR)
    assert stage.cordons() == []


@pytest.mark.parametrize("label", [None, str(State.DONE)])
def test_a_quarantined_node_whose_label_somebody_edits_does_not_wait_under_its_cordon(label: str | None) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await unending(stage, COMPILED, behaviour="Quarantine")
        await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=2 * HOUR)
        await stage.label("gpu-1", names.UPGRADE_STATE, label)
        await stage.until(lambda: stage.hold("gpu-1") == "Evicting", within=60)
        await stage.until(lambda: stage.hold("gpu-1") == "Quarantined", within=2 * HOUR)
        assert (stage.driver("gpu-1"), stage.cordons()) == (OLD, ["gpu-1"])
        await free(stage, "gpu-1")
        await stage.upgraded(NEW, within=HOUR)
        assert stage.cordons() == []

    scenario()


@pytest.mark.parametrize("behaviour", ["Quarantine", "Skip", "Fail"])
def test_pods_are_asked_to_go_before_their_node_is_given_up_by_an_operator_that_was_away(behaviour: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, undrainable={"behaviour": behaviour, "after": "1m"})
        await stage.deploy("train", node="gpu-1")
        before = users(stage)
        stage.transport.delay = lambda request: HOUR if request.path.endswith("/eviction") else 0.0
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
        await stage.kill_operator()
        await stage.rest(120)
        assert users(stage) == before
        stage.transport.delay = lambda request: 0.0
        await stage.restart_operator()
        await stage.upgraded(NEW, within=HOUR)
        assert stage.cordons() == []

    scenario()


@pytest.mark.parametrize(("kill", "drain"), [(True, False), (False, False), (False, True)])
def test_pods_are_asked_to_go_before_their_time_is_up_by_an_operator_that_was_away(kill: bool, drain: bool) -> None:
    rules = {"podDeletion": {"timeoutSeconds": 60}, "drain": {"enable": drain, "timeoutSeconds": 300}}

    @on_stage(gpu_nodes=2, upgrade=rules)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, killAtDeadline=kill, retries=0)
        await stage.deploy("train", node="gpu-1")
        stage.transport.delay = lambda request: HOUR if request.path.endswith("/eviction") else 0.0
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
        await stage.kill_operator()
        await stage.rest(120)
        stage.transport.delay = lambda request: 0.0
        deleted: list[str] = []

        def see(request: Request, proceed: Proceed) -> Answer | Stream:
            if request.method == "DELETE" and f"/{WORKLOAD_NAMESPACE}/pods/" in request.path:
                deleted.append(request.path)
            return proceed()

        stage.transport.interfere = see
        await stage.restart_operator()
        await stage.upgraded(NEW, within=HOUR)
        assert deleted == [], "no budget was asked"
        assert {State.FAILED, State.DRAIN_REQUIRED}.isdisjoint(stage.entered("gpu-1"))

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_failed_node_serves_on(stage: Stage) -> None:
    await unending(stage, COMPILED, behaviour="Fail")
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=2 * HOUR)
    assert (stage.driver("gpu-1"), stage.cordoned("gpu-1")) == (OLD, False)


@MODES
@pytest.mark.parametrize("behaviour", ["Skip", "Quarantine"])
def test_a_canary_whose_only_node_is_given_up_lets_no_later_wave_start(behaviour: str, mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        old = await unending(stage, mode, waves=[{"name": "canary", "nodes": 1}], behaviour=behaviour)
        await stage.until(lambda: stage.hold("gpu-1") in ("Undrainable", "Quarantined"), within=2 * HOUR)
        await stage.rest(2 * HOUR)
        assert stage.drivers() == [old], "nobody has seen the new driver run"
        assert {stage.hold(node) for node in ("gpu-2", "gpu-3")} == {"WaveNotDone"}
        await free(stage, "gpu-1")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=2 * HOUR)

    scenario()


@pytest.mark.parametrize("behaviour", ["Skip", "Quarantine"])
def test_nodes_are_not_stopped_behind_a_canary_that_can_do_without_the_node_that_was_given_up(behaviour: str) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 2})
    async def scenario(stage: Stage) -> None:
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-2", image=f"*{NEW}*"))
        canary = [{"name": "canary", "nodes": 2}]
        await unending(stage, COMPILED, out=2, waves=canary, behaviour=behaviour, after="2m")
        await stage.until(lambda: stage.hold("gpu-1") in ("Undrainable", "Quarantined"), within=HOUR)
        assert (stage.hold("gpu-2"), stage.hold("gpu-3")) == ("DriverStarting", "WaveNotDone")
        found = {each["group"]: each["reasons"] for each in (await status_of(stage))["groups"]}
        assert found.get("waiting") == {"WaveNotDone": 1}, found

    scenario()
