"""The steps of a node that is not under way: new or done, where its driver has to be what it should be, or failed."""

from __future__ import annotations

from gpuward.model.actions import EventText
from gpuward.model.backoff import backoff
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, Failure, left_unvalidated
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.troubles import DriverNow
from gpuward.model.waits import ComesBack, Failed, OperandPod, Plain, RetryLater, TwoDriverPods
from gpuward.upgrade.driver_restart import replaced
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.in_use import had_the_target, in_the_way
from gpuward.upgrade.node_gates import held_by_itself
from gpuward.upgrade.recovery import is_in_doubt, needs_recovery, unvalidated
from gpuward.upgrade.step import Move, Rest, Step, Wait, step
from gpuward.upgrade.uncordon import is_kept, leftovers
from gpuward.upgrade.waits import driver_starting, pod_missing, settling, unconfirmed

MOST_PATIENCE = 1024
"""How much later than the first time a node is tried again at most."""
UNTOLD = Failed(None, "somebody set the state label to upgrade-failed, and did not say why")
"""What is known of a failure that gpuward did not see."""


@step(State.UNKNOWN)
@step(State.DONE)
def watch_over(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Mark the node once its driver is out of step; otherwise say what keeps the node from being up to date, if anything does."""
    if node.left and not is_kept(node):
        return Rest()
    if _lost_in_a_pause(node):
        return Move(State.FAILED, failure=node.record.failure, forced=node.record.forced)
    if (kept := kept_driver(node)) is not None:
        return Wait(kept, annotations=leftovers(node))
    if node.asked or needs_recovery(node):
        forced = node.requested or needs_recovery(node) or left_unvalidated(node.record)
        return Move(State.UPGRADE_REQUIRED, forced=forced)
    if not node.target and node.driver is not None and not node.driver.orphan:
        unknown = settling(node, node.record.since)
        return Wait(unknown, retry_at=unknown.until)
    if in_the_way(node) and not had_the_target(node):
        return Move(State.UPGRADE_REQUIRED)
    placed = node.driver is not None and not node.unplaced
    if node.state is State.UNKNOWN and placed and (node.up_to_date or not left_unvalidated(node.record)):
        return Move(State.DONE, annotations=leftovers(node), target=node.target if node.driver_ready else "")
    hold = unfinished(node)
    if hold is not None:
        older = node.older_validators if hold.reason is Reason.VALIDATOR_REPLACING else ()
        return Wait(hold, actions=replaced(pod for pod in older if not pod.deleting), annotations=leftovers(node))
    if node.driver_ready and node.driver is not None and node.driver.revision != node.target:
        return Wait(Hold(Plain(Reason.METADATA_BEHIND), node.record.since), annotations=leftovers(node))
    return Rest(leftovers(node))


def kept_driver(node: NodeFacts) -> Hold | None:
    """Say that a node keeps the driver that serves it, and why no other comes; None where something else is wrong."""
    if node.unserved is None or not (node.keeps_driver and (node.loaded or node.withheld)) or node.driver_pods > 1:
        return None
    return Hold(node.unserved, node.record.since)


def unfinished(node: NodeFacts) -> Hold | None:
    """Say what keeps a node from being up to date about which nothing has to be done, or is wrong with one that is; else None."""
    driver = node.driver
    if driver is None:
        return pod_missing(node, node.record.since or node.node.created)
    if node.up_to_date:
        # The one that is not counted takes the driver along when it goes.
        return Hold(TwoDriverPods(node.driver_pods), node.record.since) if node.driver_pods > 1 else None
    if driver.orphan and node.unserved is not None:
        return Hold(node.unserved, node.record.since or driver.created)
    if driver.orphan:
        return Hold(OperandPod(driver.ref, Reason.DRIVER_ORPHANED), node.record.since or driver.created)
    if driver.deleting:
        return Hold(OperandPod(driver.ref, Reason.DRIVER_STOPPING), node.record.since)
    if not driver.ready:
        return driver_starting(node, driver, driver.turned or driver.created)
    unready = (pod.turned or pod.created for pod in node.live_validators if not pod.ready)
    stale = [pod for pod in node.older_validators if node.replaced]
    return unconfirmed(node, stale, next(unready, driver.turned or driver.created))


def is_outdated(node: NodeFacts) -> bool:
    """Tell whether the driver serves, and is not the one that the node should have."""
    return node.driver is not None and node.loaded and not (node.in_step or node.driver.orphan)


def remembered_failure(node: NodeFacts) -> Hold | None:
    """Return the failure of a node whose label went while upgrades are off: without a good driver since, it has failed still."""
    failure = node.record.failure
    gone = node.record.state is State.FAILED and node.state in (State.UNKNOWN, State.FAILED)
    if not gone or node.retargeted or node.up_to_date:
        return None
    if failure is None:
        return Hold(UNTOLD, node.record.since)
    return Hold(Failed(failure.state, failure.cause, _since_then(node, failure)), node.record.since)


def _lost_in_a_pause(node: NodeFacts) -> bool:
    """Tell whether a pause took the label of a failed node: who takes it away at another time wants it tried again at once."""
    known = node.state is State.UNKNOWN and node.record.state is State.FAILED and bool(node.record.paused)
    return known and node.record.failure is not None and not (node.retargeted or node.asked_by_hand)


@step(State.FAILED)
def recover(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Try again some times, ever later; and at once when the target changes, or a driver is ready that was not when it failed.

    A node that could not start now has failed still: in the queue it would be one that has yet to begin.
    """
    failure, retries = node.record.failure, policy.rollout.retries
    if node.retargeted and not node.by_hand:
        return Move(State.UPGRADE_REQUIRED, forced=unvalidated(node), events=_begins_anew(node))
    if node.validated or _is_mended(node, failure):
        return Move(State.VALIDATION_REQUIRED)
    if failure is None:
        return Wait(Hold(UNTOLD, node.record.since))
    driver_now = _since_then(node, failure)
    if failure.attempts > retries:
        return Wait(Hold(Failed(failure.state, failure.cause, driver_now), node.record.since))
    if (returned := _would_return(node, failure)) is not None:
        return Wait(returned)
    first = policy.rollout.retry_backoff
    until = failure.at + max(backoff(failure.attempts, first, first * MOST_PATIENCE), _ends_within(node, failure))
    if now >= until and (hold := held_by_itself(node, policy)) is not None:
        return Wait(hold, retry_at=hold.until)
    if now >= until:
        return Move(State.UPGRADE_REQUIRED, forced=unvalidated(node))
    later = RetryLater(failure.state, failure.cause, failure.attempts, retries, driver_now)
    return Wait(Hold(later, node.record.since, until), retry_at=until)


def _begins_anew(node: NodeFacts) -> tuple[EventText, ...]:
    """Tell of the failure of a node that failed in this very pass, and begins anew in it: nobody would see that it did."""
    failure = node.record.failure
    if failure is None or not node.just_entered:
        return ()
    failed = f"Driver upgrade failed in {failure.state}: {failure.cause}"
    return (EventText(f"{failed}; the node is to have another driver by now, and begins anew with that", warning=True),)


def _would_return(node: NodeFacts, failure: Failure) -> Hold | None:
    """Say who has pods on the node again that tolerate its cordon, where it failed for theirs: they would be evicted, and come
    back, as before.
    """
    if not failure.returning or failure.state not in (State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED):
        return None
    there = node.to_drain if failure.state is State.DRAIN_REQUIRED else node.to_evict
    found = ((pod, pod.owner) for pod in there.pods if pod.comes_back and pod.is_owned_by(failure.returning) and pod.owner)
    return next((Hold(ComesBack(pod.ref, owner, None, tolerates_cordon=True), node.record.since) for pod, owner in found), None)


def _ends_within(node: NodeFacts, failure: Failure) -> float:
    """Return for how many seconds after a failure pods may still be ending that were made to go before: the next try would evict
    those that came after them, too, and wait for them in vain.
    """
    if failure.state not in (State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED):
        return 0.0
    return max((pod.grace for pod in (*node.to_evict.pods, *node.to_drain.pods) if pod.deleting), default=0.0)


def _is_mended(node: NodeFacts, failure: Failure | None) -> bool:
    """Tell whether the node has a driver that only needs to be validated: one that came after the failure and is ready, or the
    same one that did not get ready then, or that is confirmed by now where its next attempt failed before it was touched. Where
    only the label tells of a failure, one that its validator pods have not seen: nobody else replaces these.
    """
    if not node.driver_ready or node.driver is None:
        return False
    if failure is None:
        return bool(node.stale_validators)
    if failure.state in UNDISTURBED and node.record.forced and node.record.cordon is CordonOwner.GPUWARD and node.in_step:
        return not is_in_doubt(node)
    return failure.state is State.POD_RESTART_REQUIRED or failure.driver not in ("", node.driver.uid)


def _since_then(node: NodeFacts, failure: Failure) -> DriverNow | None:
    """Say what became of the driver pod since the failure, if it is another one."""
    driver = node.driver
    if driver is None:
        return DriverNow()
    if not failure.driver or failure.driver == driver.uid:
        return None
    return DriverNow(driver.name, driver.ready, node.trouble)

