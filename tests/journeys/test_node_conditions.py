"""Kubernetes' conditions of drains and maintenance: what others read on a node is true, and nothing of it stays."""

from __future__ import annotations

from typing import Any

from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.record import format_time
from gpuward.model.states import State
from gpuward.model.told import DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_IN_PROGRESS, MAINTENANCE_PLANNED, TYPES
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from kubesandbox.store import Event
from tests.journeys.looking import status_of
from tests.journeys.stage import NEW, Proceed, Stage, on_stage
from tests.journeys.test_cleanup import cleanup, uninstall
from tests.journeys.test_removed import MODES, installed
from tests.journeys.test_rolloutpolicy import KEY, apply, edit
from tests.journeys.test_windows import ask

TOLD = {"nodeConditions": True}
IN_PLACE = {DRAINED: "True", MAINTENANCE_IN_PROGRESS: "True"}


def conditions(stage: Stage, node: str) -> dict[str, dict[str, Any]]:
    found = stage.node(node)["status"].get("conditions") or ()
    return {one["type"]: one for one in found if one["type"] in TYPES}


def told(stage: Stage, node: str) -> dict[str, str]:
    return {kind: one["status"] for kind, one in conditions(stage, node).items()}


async def say(stage: Stage, node: str, kind: str, status: str | None, message: str = "by hand") -> None:
    """Set a condition as another controller does, or take it away."""
    one = {"type": kind, "$patch": "delete"} if status is None else {
        "type": kind, "status": status, "reason": "Other", "message": message,
        "lastTransitionTime": stage.node(node)["metadata"]["creationTimestamp"] if message == "long ago" else _now(stage)}
    await stage.user.patch_merge(resources.NODES, node, {"status": {"conditions": [one]}}, subresource="status", strategic=True)


def _now(stage: Stage) -> str:
    return format_time(stage.clock.now())


async def stuck(stage: Stage, node: str = "gpu-1") -> Fault:
    """Let the new driver crash on a node, and wait until it is tried there."""
    fault = Fault(FaultKind.DRIVER_CRASH, node=node, image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to()
    await stage.until(lambda: stage.state(node) == State.POD_RESTART_REQUIRED)
    await stage.rest(1)
    return fault


def writes(stage: Stage) -> int:
    return sum(count for key, count in stage.client.stats.requests.items() if key.resource == "nodes/status")


@MODES
def test_others_read_how_far_a_node_is_and_it_is_true(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        stage.run_pod("training", "gpu-1", owned=True)
        (old,) = stage.drivers()
        await apply(stage, interop=TOLD)
        await stage.rest(5)
        seen: list[tuple[str, ...]] = [()]
        lies: list[str] = []

        def look(event: Event) -> None:
            if event.obj["metadata"]["name"] != "gpu-1":
                return
            true = tuple(sorted(kind for kind, status in told(stage, "gpu-1").items() if status == "True"))
            on_node = [pod for pod in stage.workload_pods("training") if pod["spec"].get("nodeName") == "gpu-1"]
            if DRAINED in true and (on_node or DRAIN_IN_PROGRESS in true):
                lies.append(f"{true} with {len(on_node)} pods")
            if true != seen[-1]:
                seen.append(true)

        stage.sandbox.store.subscribe(look, "nodes")
        await ask(stage, mode)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        await stage.rest(1)
        assert lies == []
        assert seen == [(), (DRAIN_IN_PROGRESS,), (DRAINED, MAINTENANCE_IN_PROGRESS), ()]
        assert {node: told(stage, node) for node in stage.states()} == {"gpu-1": {}, "gpu-2": {}}

    scenario()


@on_stage(gpu_nodes=2)
async def test_without_the_setting_nothing_is_written(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop={"slurm": True})
    await say(stage, "gpu-1", DRAINED, "True")
    await stage.upgrade_to()
    await stage.upgraded()
    assert writes(stage) == 0
    assert told(stage, "gpu-1") == {DRAINED: "True"}


@on_stage(gpu_nodes=1)
async def test_a_node_whose_pods_have_notice_has_maintenance_ahead(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("training", "gpu-1", owned=True)
    await apply(stage, interop=TOLD, notice={"before": "15m"})
    await stage.rest(10)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "NoticeGiven")
    await stage.rest(1)
    assert told(stage, "gpu-1") == {MAINTENANCE_PLANNED: "True"}
    assert conditions(stage, "gpu-1")[MAINTENANCE_PLANNED]["message"].startswith("gpuward: driver upgrade, not before 20")
    await stage.until(lambda: bool(stage.cordons()), within=1200)
    await stage.upgraded()
    await stage.rest(1)
    assert told(stage, "gpu-1") == {}


@on_stage(gpu_nodes=1)
async def test_what_others_say_is_true_stays_and_what_they_said_long_ago_is_as_good_as_nothing(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=TOLD)
    await say(stage, "gpu-1", MAINTENANCE_IN_PROGRESS, "True", "fans")
    await say(stage, "gpu-1", DRAINED, "False", "long ago")
    fault = await stuck(stage)
    found = conditions(stage, "gpu-1")
    assert found[MAINTENANCE_IN_PROGRESS]["message"] == "fans"
    assert (found[DRAINED]["status"], found[DRAINED]["message"]) == ("True", "gpuward: driver upgrade")
    stage.sandbox.faults.clear(fault)
    await stage.upgraded()
    await stage.rest(1)
    assert told(stage, "gpu-1") == {MAINTENANCE_IN_PROGRESS: "True"}


@on_stage(gpu_nodes=1)
async def test_a_drain_that_begins_meanwhile_says_itself_when_it_is_done(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=TOLD)
    fault = await stuck(stage)
    await say(stage, "gpu-1", DRAINED, "False", "kubectl drain")
    await stage.rest(60)
    assert told(stage, "gpu-1")[DRAINED] == "False"
    await say(stage, "gpu-1", DRAINED, None)
    await stage.until(lambda: told(stage, "gpu-1") == IN_PLACE)
    stage.sandbox.faults.clear(fault)
    await stage.upgraded()
    await stage.rest(1)
    assert told(stage, "gpu-1") == {}


@on_stage(gpu_nodes=1)
async def test_they_go_with_the_setting_and_come_again_with_it_and_outlive_the_operator(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=TOLD)
    await stuck(stage)
    assert told(stage, "gpu-1") == IN_PLACE
    await edit(stage, interop={"nodeConditions": False})
    await stage.until(lambda: told(stage, "gpu-1") == {})
    await edit(stage, interop=TOLD)
    await stage.until(lambda: told(stage, "gpu-1") == IN_PLACE)
    before = conditions(stage, "gpu-1"), writes(stage)
    await stage.restart_operator()
    await stage.rest(60)
    assert (conditions(stage, "gpu-1"), writes(stage)) == before, "the next process has nothing to add"
    stage.sandbox.store.delete(KEY, None, "default")
    await stage.until(lambda: told(stage, "gpu-1") == {}, within=90)
    assert stage.cordons() == ["gpu-1"]


@on_stage(gpu_nodes=1)
async def test_a_process_that_dies_before_it_takes_them_back_leaves_it_to_the_next(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=TOLD)
    fault = await stuck(stage)
    stage.sandbox.faults.clear(fault)
    await stage.until(lambda: not stage.cordons())
    await stage.kill_operator()
    await say(stage, "gpu-1", DRAINED, "True", "gpuward: driver upgrade")
    await stage.restart_operator()
    await stage.until(lambda: told(stage, "gpu-1") == {})


@on_stage(gpu_nodes=1)
async def test_a_failed_node_is_in_maintenance_until_its_cordon_goes_and_an_uninstall_leaves_nothing(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, interop=TOLD, retries=0)
    await stuck(stage)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    await stage.rest(1)
    assert told(stage, "gpu-1") == {MAINTENANCE_IN_PROGRESS: "True"}
    await say(stage, "gpu-1", MAINTENANCE_PLANNED, "True", "fans")
    await uninstall(stage)
    lines = await cleanup(stage, timeout=60)
    assert told(stage, "gpu-1") == {MAINTENANCE_PLANNED: "True"}
    assert any("1 condition removed" in line for line in lines)
    assert await cleanup(stage) == ["no node has anything of a GPU operator"]


def test_an_operator_that_may_not_write_them_says_so_and_upgrades_all_the_same() -> None:
    allowed: list[bool] = []

    def roles(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.path.endswith("/status") and "/nodes/" in request.path and not allowed:
            return refusal(Forbidden('nodes "gpu-1" is forbidden: User "gpuward" cannot patch resource "nodes/status" in API '
                                     'group "" at the cluster scope'))
        return proceed()

    @on_stage(gpu_nodes=2, interfere=roles)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, interop=TOLD)
        fault = await stuck(stage)
        await stage.until(lambda: bool(rights(stage)))
        assert rights(stage) == [
            "the operator may not patch nodes/status: nodes do not get the conditions that interop.nodeConditions asks for, nor "
            "lose them. To allow it: kubectl apply -f deploy/nvidia-chart-rights.yaml"]
        assert rights(stage)[0] in (await status_of(stage))["problems"]
        await edit(stage, interop={"nodeConditions": False})
        await stage.until(lambda: not rights(stage))
        await edit(stage, interop=TOLD)
        await stage.until(lambda: bool(rights(stage)))
        before = writes(stage)
        await stage.rest(120)
        assert writes(stage) - before <= 8, "what is refused is not tried all the time"
        allowed.append(True)
        await stage.until(lambda: not rights(stage))
        assert told(stage, "gpu-1") == IN_PLACE
        allowed.clear()
        await edit(stage, interop={"nodeConditions": False})
        await stage.until(lambda: bool(rights(stage)))
        await stage.rest(60)
        assert rights(stage), "the conditions are there still"
        allowed.append(True)
        await stage.until(lambda: told(stage, "gpu-1") == {} and not rights(stage))
        stage.sandbox.faults.clear(fault)
        await stage.upgraded()

    scenario()


def rights(stage: Stage) -> list[str]:
    found = stage.policy_status().get("conditions") or ()
    return [str(one["message"]) for one in found if one["type"] == "RightsMissing"]
