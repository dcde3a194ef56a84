"""The steps that replace the driver, see it validated and put the node back into service."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuward import names
from gpuward.model import causes
from gpuward.model.actions import DeletePod, PatchNode
from gpuward.model.denials import ReplacementRefused, WriteRefused
from gpuward.model.explain import destination
from gpuward.model.placement import Placement, placement_of
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.removal import NO_DRIVER
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.model.waits import OperandPod, Plain, TwoDriverPods
from gpuward.upgrade.drain import fail, got_another
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.plugin_first import about_to_be_refused, plugin_first
from gpuward.upgrade.recovery import replacement_refusal
from gpuward.upgrade.step import Move, Step, Wait, step
from gpuward.upgrade.still_offered import driver_goes
from gpuward.upgrade.uncordon import back_in_the_queue, finish
from gpuward.upgrade.waits import driver_starting, lasting, pod_missing, settling, unconfirmed

RESTARTS_TOLERATED = 10
"""NVIDIA's limit: a driver container that restarted more often has failed (operator-libs, pod restart step)."""
RETURNS_TOLERATED = 5
"""How often a node is emptied anew because pods that use its GPUs came back, before that counts as a failure."""
VALIDATOR_GRACE = 1
"""Seconds that a validator pod gets to end. Its main container is a shell, which ignores SIGTERM: it would be killed all the same
at the end of its own grace, 30 s, with its node out of service."""


@step(State.POD_RESTART_REQUIRED)
def restart_driver(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Replace the driver pod, once nothing that must leave still uses the node's GPUs."""
    if node.driver is not None and not node.driver.deleting and node.driver_pods == 1 and node.target:
        if node.driver_ready and not _wants_fresh_pod(node):
            since = {names.VALIDATION_SINCE: str(int(now))}
            return Move(State.VALIDATION_REQUIRED, annotations=since | _without_safe_load(node))
        if node.in_step and node.driver.restarts > RESTARTS_TOLERATED and not _wants_fresh_pod(node):
            return fail(node, causes.restarted(node.driver.name, node.driver.restarts), now)
        kept = node.only_restarted if node.in_step else node.restart_only or _holder_comes(node)
        if not node.to_evict.empty and not kept:
            return _to_be_asked(node) or about_to_be_refused(node, now) or _empty_again(node, now)
    if node.withheld and not node.to_evict.empty:
        return _to_be_asked(node) or _empty_again(node, now)
    if node.withheld and node.record.restart:
        return Move(State.POD_DELETION_REQUIRED)  # another driver comes than the one that was to come back
    hold = _awaited(node)
    until = _deadline(node, policy)
    if until is not None and node.is_overdue(until, now):
        return fail(node, causes.overdue(hold, until - node.record.since, ready=bool(node.node.ready)), now)
    hold, told = lasting(hold, now)
    again = min((at for at in (hold.until, until, told) if at is not None), default=None)
    hold = msgspec.structs.replace(hold, until=until)
    if hold.reason in (Reason.DRIVER_STARTING, Reason.DRIVER_FAILING, Reason.DRIVER_UNPLACED):
        return Wait(hold, annotations=_without_safe_load(node), retry_at=until)
    replacement = _replacement(node)
    if replacement and (first := plugin_first(node, now)) is not None:
        return msgspec.structs.replace(first, hold=msgspec.structs.replace(first.hold, until=until))
    ended = _ended(node) if node.driver is not None and node.driver.deleting else ()
    # A node gets the label of its driver back only while it is cordoned.
    recordon = (bool(replacement) or node.withheld) and not node.unschedulable
    return Wait(hold, actions=(*replacement, *ended), recordon=recordon, retry_at=again)


def _ended(node: NodeFacts) -> tuple[DeletePod, ...]:
    """Return the deletions of validator pods that idle in their shell, as the driver pod goes. The driver manager would have them
    deleted in a moment, with all of their grace, which a kubelet does not cut short once it has begun. Those that come in their
    place wait for the driver in an init container, which heeds SIGTERM. Where no driver comes they stay.
    """
    if node.record.target == NO_DRIVER:
        return ()
    why, idle = "the driver manager would wait for it", (pod for pod in node.validators if pod.ready and not pod.deleting)
    return tuple(DeletePod(pod.ref, pod.node, grace=min(VALIDATOR_GRACE, int(pod.grace)), why=why) for pod in idle)


def _awaited(node: NodeFacts) -> Hold:
    """Say what has to come before the driver is ready."""
    since, driver = node.record.since, node.driver
    if driver is None and node.unlabelled and node.refused is not None:
        return Hold(WriteRefused(node.refused.message, node.refused.count), since)
    if driver is None:
        return pod_missing(node, since)
    if driver.deleting:
        return Hold(OperandPod(driver.ref, Reason.DRIVER_STOPPING), since)
    if node.driver_pods > 1:
        return Hold(TwoDriverPods(node.driver_pods), since)
    if not node.target:
        return settling(node, since)
    if _holder_comes(node):
        return Hold(Plain(Reason.OPERANDS_STARTING), since)
    if not node.in_step or _wants_fresh_pod(node):
        if (refusal := replacement_refusal(node)) is not None:
            return Hold(ReplacementRefused(driver.ref, refusal.message, refusal.count), since)
        return Hold(OperandPod(driver.ref, Reason.DRIVER_STOPPING), since)
    return driver_starting(node, driver, since)


def _deadline(node: NodeFacts, policy: UpgradePolicy) -> float | None:
    """Return when the time of a node in its state is up. The pod of another driver than the one that it was sent to has all of
    it, but no pod that somebody deletes again and again has it for ever.
    """
    seconds, since = policy.rollout.deadline(node.state), node.record.since
    if not seconds:
        return None
    if node.driver is None or not got_another(node):
        return since + seconds
    return min(max(since, node.driver.created), since + seconds) + seconds


def _replacement(node: NodeFacts) -> tuple[DeletePod | PatchNode, ...]:
    """Return the deletion of a driver pod that is to be replaced and not on its way yet, or the move that makes it go."""
    if node.driver is None or node.driver.deleting or node.driver_pods > 1 or not node.target:
        return ()
    if (node.in_step and not _wants_fresh_pod(node)) or _holder_comes(node):
        return ()
    if node.moving is not None:
        return (_placement(node, node.moving),)
    look, same = node.to_evict.look, ""
    if node.restart_only:
        look, same = msgspec.structs.replace(look, module_holders=node.module_holders.pods), node.target_digest
    why = "its node is to have no driver" if node.removing else "its template is out of date"
    return (DeletePod(node.driver.ref, node.node.name, look, same_driver=same, why=why, unplaced=node.unplaced),)


def _holder_comes(node: NodeFacts) -> bool:
    """Tell whether the driver pod is only to be restarted once an operand keeps the driver loaded under the GPU pods again."""
    return node.same_driver and node.only_restarted and node.module_holders.awaited and not (node.in_step or node.to_evict.empty)


def _placement(node: NodeFacts, wanted: Placement) -> PatchNode:
    """Return the patch that gives the node to another DaemonSet; the controller of the one that has it then deletes its pod."""
    labels = node.node.labels
    return PatchNode(
        node.node.ref,
        labels={key: value for key, value in wanted.labels.items() if labels.get(key) != value},
        expect_labels={names.UPGRADE_STATE: str(node.state), **{key: labels.get(key) for key in wanted.labels}},
        expect_unschedulable=True,
        has_annotations=node.node.has_annotations,
        last_look=node.to_evict.look,
        driver=node.driver.ref if node.driver else None,
        why=f"it is moved to {destination(wanted, placement_of(labels))}",
    )


def _to_be_asked(node: NodeFacts) -> Move | None:
    """Return the way back to those that wait of a node that was admitted for a mere restart, and gets another driver now: nothing
    that holds evictions back was asked about its pods. One whose driver has gone stays cordoned.
    """
    if not node.record.restart:
        return None
    move = back_in_the_queue(node)
    return msgspec.structs.replace(move, uncordon=move.uncordon and node.loaded)


def _empty_again(node: NodeFacts, now: float) -> Move:
    """Go back and evict the pods that took the node's GPUs before the driver was replaced; not for ever."""
    if node.record.returns < RETURNS_TOLERATED:
        return Move(State.POD_DELETION_REQUIRED, returned=True)
    pods = [*node.to_evict.pods, *(blocked.pod for blocked in node.to_evict.blocked)]
    return fail(node, causes.come_back(pods[0].ref, node.record.lifted), now, pods=pods)


def _wants_fresh_pod(node: NodeFacts) -> bool:
    """Tell whether somebody asked for this upgrade to cure a driver pod that is in step but does not get ready."""
    if node.driver is None or not node.record.forced or node.safe_load:
        return False
    return not node.driver.ready and node.was_there(node.driver)


def _without_safe_load(node: NodeFacts) -> dict[str, str | None]:
    """Remove the annotation by which a driver pod waits for leave to load: its node is empty now."""
    return {names.SAFE_LOAD: None} if node.safe_load else {}


@step(State.VALIDATION_REQUIRED)
def validate(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Wait until validator pods younger than the driver pod are ready; replace those that are older."""
    if node.driver is None or node.driver.deleting or node.unplaced or (node.target and not node.in_step):
        return Move(State.POD_RESTART_REQUIRED)
    safe_load = _without_safe_load(node)
    if not node.target:
        hold = settling(node, node.record.since)
        return Wait(hold, annotations=safe_load, retry_at=hold.until)
    if (step := driver_goes(node, policy, now)) is not None:
        return step
    if node.validated:
        return finish(node)
    stale = [pod for pod in node.stale_validators if not pod.deleting]
    hold = unconfirmed(node, stale, node.record.since)
    until = _deadline(node, policy)
    if until is not None and node.is_overdue(until, now):
        return fail(node, causes.overdue(hold, until - node.record.since, ready=bool(node.node.ready)), now)
    hold, told = lasting(hold, now)
    again = min((at for at in (until, told) if at is not None), default=None)
    return Wait(msgspec.structs.replace(hold, until=until), actions=replaced(stale), annotations=safe_load, retry_at=again)


def replaced(validators: Iterable[PodView]) -> tuple[DeletePod, ...]:
    """Return the deletions of validator pods, which their DaemonSet replaces."""
    why = "it validated an earlier driver"
    return tuple(DeletePod(pod.ref, pod.node, grace=min(VALIDATOR_GRACE, int(pod.grace)), why=why) for pod in validators)
