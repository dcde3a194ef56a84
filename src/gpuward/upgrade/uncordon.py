"""The end of an upgrade: back into service, with nothing left behind that would be taken for an upgrade under way."""

from __future__ import annotations

from typing import Final

from gpuward import names
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, only_remembers
from gpuward.model.removal import NO_DRIVER
from gpuward.model.states import MAINTENANCE, UNDISTURBED, State
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.opportunities import evicts_nobody
from gpuward.upgrade.recovery import is_in_doubt, unvalidated
from gpuward.upgrade.step import Move, Step, step
from gpuward.upgrade.words import aborted

_NEXT: Final = {
    State.CORDON_REQUIRED: State.WAIT_FOR_JOBS_REQUIRED,
    State.WAIT_FOR_JOBS_REQUIRED: State.POD_DELETION_REQUIRED,
    State.POD_DELETION_REQUIRED: State.POD_RESTART_REQUIRED,
    State.DRAIN_REQUIRED: State.POD_RESTART_REQUIRED,
}
"""The way of a node to its validation whose new driver has come before anybody was evicted for it."""


def no_eviction(node: NodeFacts) -> Move | None:
    """Return the way past all evictions of a node that needs none any more: its new driver has come already, or its target went
    back to what it still runs. That goes to the end where the driver is ready, else back to those that wait, where it is waited
    for without disturbing anybody.
    """
    if has_come(node):
        return Move(_NEXT[node.state])
    if not node.in_step or node.needed or not node.untouched:
        return None
    if node.driver_ready:
        return finish(node)
    return back_in_the_queue(node)


def has_come(node: NodeFacts) -> bool:
    """Tell whether the new driver serves a node already that has yet to be emptied for it, as after labels that took the old one
    away and were put right.
    """
    return node.state in UNDISTURBED and node.driver_ready and node.driver_pods == 1 and not (node.asked or node.untouched)


def left_alone(node: NodeFacts, policy: UpgradePolicy, now: float) -> Move | None:
    """Return the way back to those that wait of a node to which pods came, where nobody is evicted for a removal, or not yet; and
    of one whose driver nobody has touched, where the rollout of the next was aborted, or that is not its NVIDIADriver's any more.
    """
    alone = (policy.free_only and has_users(node)) or evicts_nobody(node, policy, now)
    spared = alone or (node.untouched and (node.keeps_driver or aborted(node, policy) is not None))
    return back_in_the_queue(node) if spared else None


def has_users(node: NodeFacts) -> bool:
    """Tell whether anything is on a node that has to leave, or may finish, before its driver goes."""
    return not node.to_evict.empty or bool(node.jobs)


def back_in_the_queue(node: NodeFacts) -> Move:
    """Return the way of a node whose driver nobody has touched back to those that wait, and into service: not one that is tried
    again, and whose driver may be what failed.
    """
    ours = not node.cordon_is_foreign and node.record.cordon is CordonOwner.GPUWARD and not is_in_doubt(node)
    return Move(State.UPGRADE_REQUIRED, uncordon=ours, annotations=_removal(node, names.WAIT_FOR_JOBS_SINCE))


def finish(node: NodeFacts) -> Move:
    """Go on to lift our cordon, or end at once where the cordon is somebody else's."""
    clocks = (names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.SAFE_LOAD)
    if node.cordon_is_foreign:
        return Move(State.DONE, annotations=_removal(node, *clocks, names.INITIALLY_UNSCHEDULABLE), target=node.target)
    return Move(State.UNCORDON_REQUIRED, annotations=_removal(node, *clocks), target=node.target)


def release(node: NodeFacts) -> Move | None:
    """Return the move that leaves nothing behind on a node that has no driver of ours any more, and is to have none; but that a
    driver was not validated there, which has to be made good if the node ever has one again.
    """
    if not node.left or node.state in MAINTENANCE:
        return None
    if is_kept(node):
        return None
    if node.state is State.UNKNOWN and (node.node.record is None or only_remembers(node.record)):
        return None
    ours = not node.cordon_is_foreign and node.record.cordon is CordonOwner.GPUWARD
    clocks = (names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.SAFE_LOAD, names.INITIALLY_UNSCHEDULABLE)
    remembered = node.state is State.UNKNOWN and node.record.forced
    # The pods that stood beside the driver have to be known.
    kept = remembered or _is_unvalidated(node) or node.unserved is not None
    return Move(State.UNKNOWN, uncordon=ours, annotations=_removal(node, *clocks), forced=kept)


def is_kept(node: NodeFacts) -> bool:
    """Tell whether a node without a driver pod stays out of service: an upgrade took its driver, and nobody brings the next one
    now. It offers GPUs that no driver serves. One whose driver was to go, without another, is to have none.
    """
    gone = node.record.target == NO_DRIVER or node.departed or (bool(node.record.driver) and node.record.target.startswith("/"))
    return node.unserved is not None and not gone and _is_unvalidated(node) and node.unschedulable


def _is_unvalidated(node: NodeFacts) -> bool:
    return unvalidated(node) and node.state is not State.UNCORDON_REQUIRED


def leftovers(node: NodeFacts) -> dict[str, str | None]:
    """Return the removal of what an upgrade that was broken off left on a node that has none under way.

    As long as the node is cordoned, the note that its cordon was there before is no leftover.
    """
    if node.node.record is None:
        return {}
    cordon = () if node.unschedulable else (names.INITIALLY_UNSCHEDULABLE,)
    return _removal(node, names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, *cordon)


def _removal(node: NodeFacts, *keys: str) -> dict[str, str | None]:
    return {key: None for key in keys if key in node.node.annotations}


@step(State.UNCORDON_REQUIRED)
def uncordon(node: NodeFacts, policy: UpgradePolicy, now: float) -> Step:
    """Lift our own cordon, and no other; a node that somebody put here by hand is validated first, and one whose driver is not
    loaded.
    """
    lost = not node.driver_ready and not (node.untouched and node.loaded)
    if lost or node.leaving is not None or (node.record.forced and not node.validated):
        return Move(State.VALIDATION_REQUIRED, annotations={names.VALIDATION_SINCE: str(int(now))})
    ours = not node.cordon_is_foreign and node.record.cordon is CordonOwner.GPUWARD
    return Move(State.DONE, uncordon=ours, annotations=_removal(node, names.INITIALLY_UNSCHEDULABLE))
