"""Whether anybody has seen that the driver of a node works, which an upgrade may have touched and not brought to its end."""

from __future__ import annotations

from gpuward.model.record import CordonOwner
from gpuward.model.snapshot import Refusal
from gpuward.model.states import IN_PROGRESS, UNDISTURBED, State
from gpuward.upgrade.facts import NodeFacts


def unvalidated(node: NodeFacts) -> bool:
    """Tell whether the last upgrade ended, or was ended, after its driver pod was touched and before it was validated."""
    reached, failure = node.record.state, node.record.failure
    if reached in (State.FAILED, State.UPGRADE_REQUIRED):
        if failure is None:
            return reached is State.FAILED
        return not (node.untouched and (failure.state in UNDISTURBED or was_spared(node, failure.state)))
    return reached in IN_PROGRESS and reached not in UNDISTURBED


def needs_recovery(node: NodeFacts) -> bool:
    """Tell whether an earlier upgrade has left something that only a new one puts right: an unvalidated driver, or our own
    cordon, where somebody took the state label away.
    """
    return unvalidated(node) or (node.unschedulable and node.record.cordon is CordonOwner.GPUWARD)


def was_spared(node: NodeFacts, reached: State) -> bool:
    """Tell whether a node came to the replacement of its driver pod, and the pod stayed, with a driver that is validated."""
    if reached is not State.POD_RESTART_REQUIRED or not (node.untouched and node.loaded):
        return False
    return bool(node.live_validators) and not node.older_validators and all(pod.ready for pod in node.live_validators)


def is_in_doubt(node: NodeFacts) -> bool:
    """Tell whether a node under way was admitted with a driver that an earlier upgrade left, or that somebody wants replaced, and
    that no validator confirms.
    """
    if not node.record.forced:
        return False
    confirmed = all(pod.ready for pod in node.live_validators) and (bool(node.live_validators) or node.record.failure is None)
    return not (node.loaded and confirmed)


def replacement_refusal(node: NodeFacts) -> Refusal | None:
    """Return that the API server does not let the driver pod be replaced."""
    if node.driver is None or node.driver.deleting:
        return None
    refusal = node.refusals.get(node.driver.uid)
    return refusal if refusal is not None and not refusal.lost else None
