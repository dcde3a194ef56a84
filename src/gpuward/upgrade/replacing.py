"""The steps that replace the driver, see it validated and put the node back into service."""

from __future__ import annotations

from gpuward import names
from gpuward.model.actions import DeletePod
from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner
from gpuward.model.states import State
from gpuward.upgrade.emptying import fail
from gpuward.upgrade.facts import RESTARTS_TOLERATED, NodeFacts
from gpuward.upgrade.step import Move, Rest, Step, Wait, step

VALIDATION_TIMEOUT = 600.0
"""Seconds that a validator pod may take to get ready (NVIDIA's fixed limit)."""


@step(State.POD_RESTART_REQUIRED)
def restart_driver(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Replace the driver pod, once nothing that must leave still uses the node's GPUs."""
    if node.driver is None:
        return Wait(Hold(Reason.DRIVER_POD_MISSING, {}, node.record.since))
    if node.driver.deleting:
        return Wait(Hold(Reason.DRIVER_STOPPING, {"pod": node.driver.name}, node.record.since))
    if not node.target:
        return Wait(Hold(Reason.TEMPLATE_SETTLING, {}, node.record.since))
    if not node.in_step or _wants_fresh_pod(node):
        return _replace(node)
    if node.driver.ready:
        since = {names.VALIDATION_SINCE: str(int(now))}
        return Move(State.VALIDATION_REQUIRED, annotations=since | _without_safe_load(node))
    if node.driver.restarts > RESTARTS_TOLERATED:
        return fail(node, f"driver pod {node.driver.name} restarted {node.driver.restarts} times", now)
    hold = Hold(Reason.DRIVER_STARTING, {"pod": node.driver.name, "waiting": node.driver.waiting}, node.record.since)
    return Wait(hold, annotations=_without_safe_load(node))


def _wants_fresh_pod(node: NodeFacts) -> bool:
    """Tell whether somebody asked for this upgrade to cure a driver pod that is in step but does not get ready."""
    if node.driver is None or not node.record.forced or node.safe_load:
        return False
    return not node.driver.ready and node.driver.created < int(node.record.started)


def _replace(node: NodeFacts) -> Step:
    if not node.leaving.empty and not node.restart_only:
        return Move(State.POD_DELETION_REQUIRED)
    assert node.driver is not None
    deletion = DeletePod(node.driver.ref, node.node.name, last_look=not node.restart_only, why="its template is out of date")
    return Wait(
        Hold(Reason.DRIVER_STOPPING, {"pod": node.driver.name}, node.record.since),
        actions=(deletion,),
        recordon=not node.unschedulable,
    )


def _without_safe_load(node: NodeFacts) -> dict[str, str | None]:
    """Remove the annotation by which a driver pod waits for leave to load: its node is empty now."""
    return {names.SAFE_LOAD: None} if node.safe_load else {}


@step(State.VALIDATION_REQUIRED)
def validate(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Wait until validator pods younger than the driver pod are ready; replace those that are older."""
    if node.driver is None or node.driver.deleting or (node.target and not node.in_step):
        return Move(State.POD_RESTART_REQUIRED)
    if stale := [pod for pod in node.stale_validators if not pod.deleting]:
        deletions = tuple(DeletePod(pod.ref, node.node.name, why="it validated an earlier driver") for pod in stale)
        return Wait(Hold(Reason.VALIDATOR_REPLACING, {"pod": stale[0].name}, node.record.since), actions=deletions)
    fresh = [pod for pod in node.validators if not pod.deleting and not pod.finished]
    if not fresh:
        return Wait(Hold(Reason.VALIDATOR_MISSING, {}, node.record.since))
    unready = [pod for pod in fresh if not pod.ready]
    if not unready and node.driver.ready:
        return _finish(node)
    until = node.record.since + VALIDATION_TIMEOUT
    pod = unready[0] if unready else node.driver
    if now > until:
        return fail(node, f"pod {pod.name} was not ready {int(VALIDATION_TIMEOUT)} s after the driver was", now)
    hold = Hold(Reason.VALIDATOR_STARTING, {"pod": pod.name, "waiting": pod.waiting}, node.record.since, until)
    return Wait(hold, retry_at=until)


def _finish(node: NodeFacts) -> Step:
    cleared = {key: None for key in (names.VALIDATION_SINCE, names.SAFE_LOAD) if key in node.node.annotations}
    if node.cordon_is_foreign:
        return Move(State.DONE, annotations=cleared | _end(node))
    return Move(State.UNCORDON_REQUIRED, annotations=cleared)


def _end(node: NodeFacts) -> dict[str, str | None]:
    """Remove what NVIDIA's operator would take for the memory of an upgrade under way."""
    keys = (names.INITIALLY_UNSCHEDULABLE, names.UPGRADE_REQUESTED)
    return {key: None for key in keys if key in node.node.annotations}


@step(State.UNCORDON_REQUIRED)
def uncordon(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Lift our own cordon, and no other."""
    ours = not node.cordon_is_foreign and node.record.cordon in (CordonOwner.GPUWARD, None)
    return Move(State.DONE, uncordon=ours, annotations=_end(node))


@step(State.FAILED)
def recover(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Stay failed until somebody relabels the node, the target changes, or the driver is seen ready and freshly validated."""
    if node.target and node.record.target and node.target != node.record.target and not node.by_hand:
        return Move(State.UPGRADE_REQUIRED)
    if node.driver_ready and not node.stale_validators and all(pod.ready for pod in node.validators) and node.validators:
        return Move(State.VALIDATION_REQUIRED)
    failure = node.record.failure
    args = {"cause": failure.cause, "step": failure.state} if failure else {"cause": "", "step": ""}
    return Wait(Hold(Reason.FAILED, args, node.record.since))


@step(State.UNKNOWN)
@step(State.DONE)
def watch_over(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Mark the node once its driver is out of step; otherwise leave a finished node alone."""
    stranded = node.unschedulable and node.record.cordon is CordonOwner.GPUWARD
    if node.asked or stranded:
        return Move(State.UPGRADE_REQUIRED, forced=node.asked_by_hand or stranded)
    if not node.target and node.driver is not None and not node.driver.orphan:
        return Wait(Hold(Reason.TEMPLATE_SETTLING, {}, node.record.since))
    return Move(State.DONE) if node.state is State.UNKNOWN else Rest()
