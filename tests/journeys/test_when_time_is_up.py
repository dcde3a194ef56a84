"""What people are told that follows when the time comes until which a node waits, and that it does."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.cli.status import Choice
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of, explanation_of, headline_of, looking, screen_of, status_of, told_of
from tests.journeys.stage import NEW, Stage, blind_to_budgets, on_stage
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_waves import abort, resume
from tests.journeys.test_withheld import with_notebooks

DRAINED = {"drain": {"enable": True, "force": True, "deleteEmptyDir": True, "timeoutSeconds": 300}}


async def until_of(stage: Stage) -> str:
    return await told_of(stage, "gpu-1", "UNTIL")


@pytest.mark.parametrize(("fault", "rollout", "then"), [
    (FaultKind.STUCK_TERMINATING, {}, "its upgrade fails, the node is uncordoned, and it is tried again later"),
    (FaultKind.STUCK_TERMINATING, DRAINED, "the node is drained"),
    (FaultKind.DRIVER_NEVER_READY, {}, "its upgrade fails, the node stays cordoned, and it is tried again later"),
])
def test_what_follows_at_the_deadline_is_said_and_follows(fault: FaultKind, rollout: dict[str, Any], then: str) -> None:
    @on_stage(gpu_nodes=1, upgrade=rollout)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        pods = {"pod": "notebook*"} if fault is FaultKind.STUCK_TERMINATING else {}
        stage.sandbox.faults.add(Fault(fault, node="gpu-1", **pods))
        await stage.upgrade_to(NEW)
        waits = State.POD_DELETION_REQUIRED if fault is FaultKind.STUCK_TERMINATING else State.POD_RESTART_REQUIRED
        await stage.until(lambda: stage.state("gpu-1") == waits)
        await stage.rest(30)
        told = await until_of(stage)
        assert told.endswith(f"; if it still waits then: {then}"), told
        (row,) = (line for line in await screen_of(stage, 250) if line.startswith("gpu-1"))
        assert row.endswith(f": {then.partition(',')[0]}"), row
        assert not any("if still so" in (node["message"] or "") for node in (await status_of(stage))["nodes"])
        comes = State.DRAIN_REQUIRED if then == "the node is drained" else State.FAILED
        await stage.until(lambda: stage.state("gpu-1") == comes, within=3600)
        assert bool(stage.node("gpu-1")["spec"].get("unschedulable")) is ("uncordoned" not in then)
        if comes is State.FAILED:
            assert (await until_of(stage)).endswith("; if it still waits then: its upgrade is tried again")

    story()


@on_stage(gpu_nodes=1)
async def test_after_an_abort_no_further_try_is_promised(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await stage.rest(30)
    await abort(stage)
    await stage.rest(30)
    again = "it is tried again with another driver, or once the abort is taken back"
    assert (await until_of(stage)).endswith(f"; if it still waits then: its upgrade fails, the node stays cordoned, and {again}")
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=3600)
    assert (await until_of(stage)).endswith(f"; if it still waits then: {again}")
    await stage.until(lambda: stage.hold("gpu-1") == "Aborted", within=3600)
    await resume(stage)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED, within=60)
    assert (await until_of(stage)).endswith("and it is tried again later")


@on_stage(gpu_nodes=1)
async def test_nothing_is_said_of_a_time_that_is_one_of_the_step_to_come(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverStarting")
    await stage.kill_operator()
    await stage.rest(300)
    assert stage.state("gpu-1") == State.POD_RESTART_REQUIRED
    assert (await told_of(stage, "gpu-1", "NEXT")).startswith("validation-required -> ")
    assert "still waits then" not in await until_of(stage)
    assert not any("goes on to" in line for line in await screen_of(stage, 250))


async def refused(stage: Stage, **rollout: Any) -> None:
    """Begin with a node whose pods a budget keeps until its time is up."""
    await stage.installed()
    await apply(stage, retries=0, **rollout)
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    await stage.rest(30)


@on_stage(gpu_nodes=2, interfere=blind_to_budgets)
async def test_a_node_whose_evictions_are_refused_waits_by_every_word(stage: Stage) -> None:
    await refused(stage)
    message = condition_of(stage)[2]
    assert "waiting: 1 EvictionRefused (gpu-1)" in message, message
    assert "held" not in message
    assert "held" not in await headline_of(stage)
    async with looking(stage) as picture:
        assert Choice(held=True).of(picture) == []


@on_stage(gpu_nodes=1, interfere=blind_to_budgets)
async def test_who_looks_at_a_node_whose_pods_are_going_to_be_deleted_is_told_so_and_how_to_keep_them(stage: Stage) -> None:
    await refused(stage, killAtDeadline=True)
    then = "its pods are deleted whatever their budgets say (killAtDeadline)"
    assert (await until_of(stage)).endswith(f"; if it still waits then: {then}")
    (row,) = (line for line in await screen_of(stage, 300) if line.startswith("gpu-1"))
    assert row.endswith(f": {then}"), row
    keeps = ("killAtDeadline: false in the RolloutPolicy keeps pods that are still there then: the upgrade of this node fails "
             "instead")
    assert keeps in (await explanation_of(stage, "gpu-1")).notes
    await edit(stage, killAtDeadline=False)
    await stage.rest(10)
    assert "its upgrade fails" in await until_of(stage)
    before = [pod["metadata"]["uid"] for pod in stage.workload_pods("inference")]
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=3600)
    assert [pod["metadata"]["uid"] for pod in stage.workload_pods("inference")] == before
