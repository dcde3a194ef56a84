"""The steps that replace the driver, see it validated and put the node back into service."""

from __future__ import annotations

from gpuward import names
from gpuward.model.actions import DeletePod
from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from gpuward.upgrade.emptying import fail
from gpuward.upgrade.facts import RESTARTS_TOLERATED, NodeFacts
from gpuward.upgrade.finishing import finish
from gpuward.upgrade.step import Move, Rest, Step, Wait, step

VALIDATION_TIMEOUT = 600.0
"""Seconds that a validator pod may take to get ready (NVIDIA's fixed limit)."""

UNTOLD = {"cause": "whoever set the label did not say why", "step": "an unknown step"}
"""What is known of a failure that gpuward did not see."""


@step(State.POD_RESTART_REQUIRED)
def restart_driver(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Replace the driver pod, once nothing that must leave still uses the node's GPUs."""
    if node.driver is None:
        return Wait(Hold(Reason.DRIVER_POD_MISSING, {}, node.record.since))
    if node.driver.deleting:
        return Wait(Hold(Reason.DRIVER_STOPPING, {"pod": node.driver.name}, node.record.since))
    if node.driver_pods > 1:
        return Wait(Hold(Reason.TWO_DRIVER_PODS, {"pods": node.driver_pods}, node.record.since))
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
    safe_load = _without_safe_load(node)
    if not node.target:
        return Wait(Hold(Reason.TEMPLATE_SETTLING, {}, node.record.since), annotations=safe_load)
    if node.validated:
        return finish(node)
    if stale := [pod for pod in node.stale_validators if not pod.deleting]:
        deletions = tuple(DeletePod(pod.ref, node.node.name, why="it validated an earlier driver") for pod in stale)
        hold = Hold(Reason.VALIDATOR_REPLACING, {"pod": stale[0].name}, node.record.since)
        return Wait(hold, actions=deletions, annotations=safe_load)
    if not node.live_validators:
        return Wait(Hold(Reason.VALIDATOR_MISSING, {}, node.record.since), annotations=safe_load)
    until = node.record.since + VALIDATION_TIMEOUT
    pod = next((pod for pod in node.live_validators if not pod.ready), node.driver)
    if now >= until:
        return fail(node, f"pod {pod.name} was not ready {int(VALIDATION_TIMEOUT)} s after the driver was", now)
    hold = Hold(Reason.VALIDATOR_STARTING, {"pod": pod.name, "waiting": pod.waiting}, node.record.since, until)
    return Wait(hold, annotations=safe_load, retry_at=until)


@step(State.FAILED)
def recover(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Stay failed until somebody relabels the node, the target changes, or the driver is seen ready and freshly validated."""
    if node.target and node.record.target and node.target != node.record.target and not node.by_hand:
        return Move(State.UPGRADE_REQUIRED, forced=node.unvouched)
    if node.validated:
        return Move(State.VALIDATION_REQUIRED)
    failure = node.record.failure
    args = {"cause": failure.cause, "step": failure.state} if failure else UNTOLD
    return Wait(Hold(Reason.FAILED, args, node.record.since))


@step(State.UNKNOWN)
@step(State.DONE)
def watch_over(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Mark the node once its driver is out of step; otherwise leave a finished node alone."""
    interrupted = node.stranded or node.unvouched
    if node.asked or interrupted:
        return Move(State.UPGRADE_REQUIRED, forced=node.requested or interrupted)
    if not node.target and node.driver is not None and not node.driver.orphan:
        return Wait(Hold(Reason.TEMPLATE_SETTLING, {}, node.record.since))
    return Move(State.DONE) if node.state is State.UNKNOWN else Rest()
