"""What becomes of nodes without a ClusterPolicy in force: nothing is started, nobody is evicted, no driver is deleted.

Without a ClusterPolicy there are no validators, so that no upgrade can be brought to an end. A node whose driver is untouched
goes back into the queue. One whose driver pod has gone gets its new one from its DaemonSet, and keeps its state; it is validated
once a ClusterPolicy is in force again, as is one whose new driver came while it was still to be emptied. Our cordon is given back
as soon as the node has a driver that serves: the old one that nobody has touched, or a new one that is ready. A node that failed
keeps its cordon: what failed there may be the driver.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward import names
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, MAINTENANCE, UNDISTURBED, State
from gpuward.model.waits import Failed, Meanwhile, NoPolicy, Plain, UnknownState
from gpuward.upgrade.done_or_failed import UNTOLD, remembered_failure, unfinished
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.pausing import ON_THE_WAY, at_rest, given_back, is_ours
from gpuward.upgrade.progress import NodeProgress, apply_move, begin, pause, remember, walk
from gpuward.upgrade.recovery import needs_recovery
from gpuward.upgrade.step import Move
from gpuward.upgrade.uncordon import has_come

_ENDING: Final = frozenset({State.UNCORDON_REQUIRED, State.DONE})
_CLOCKS: Final = (names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE)


def advance_without_policy(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
    """Return where a node gets to, and why no further."""
    if node.left:
        return walk(begin(node, now), policy, now)
    if node.state in MAINTENANCE:
        return pause(node, Hold(Plain(Reason.MAINTENANCE), node.record.since), now)
    if node.state not in IN_PROGRESS:
        return _at_rest(node, policy, now)
    path = begin(node, now) if node.node.record is None or node.by_hand else remember(node, now)
    return _under_way(path, policy, now)


def _at_rest(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
    path = at_rest(node, policy, now)
    if node.node.state is None:
        return msgspec.structs.replace(path, hold=Hold(UnknownState(node.node.upgrade_label)))
    if node.state is State.FAILED:
        failure = node.record.failure
        failed = UNTOLD if failure is None else Failed(failure.state, failure.cause)
        return msgspec.structs.replace(path, hold=Hold(failed, node.record.since))
    waits = node.state is State.UPGRADE_REQUIRED or node.asked or needs_recovery(node)
    path = given_back(path, now) if _serves(node) else path
    found = unfinished(node)
    if waits or (found is not None and node.driver_ready):  # nobody can validate its driver
        found = _hold(node, policy)
    return msgspec.structs.replace(path, hold=remembered_failure(node) or found)


def _under_way(path: NodeProgress, policy: UpgradePolicy, now: float) -> NodeProgress:
    node = path.node
    if node.validated and node.state in (State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED):
        return walk(path, policy, now, within=_ENDING)
    if has_come(node):
        path = walk(path, policy, now, within=ON_THE_WAY | {State.VALIDATION_REQUIRED})
    elif (move := _way_back(node)) is not None:
        back = apply_move(path, move, now)
        return msgspec.structs.replace(back, hold=_hold(back.node, policy))
    elif node.state is State.POD_RESTART_REQUIRED and node.driver_ready:
        since = {names.VALIDATION_SINCE: str(int(now))}
        path = apply_move(path, Move(State.VALIDATION_REQUIRED, annotations=since), now)
    cordoned = Meanwhile.CORDONED if node.unschedulable else Meanwhile.NOTHING
    hold = _hold(path.node, policy, Meanwhile.UNVALIDATED if _serves(node) else cordoned)
    held = pause(path.node, hold, now) if path.node.node.record is not None and not path.entered else path
    path = msgspec.structs.replace(path, node=held.node, adopted=path.adopted or held.adopted, hold=hold)
    return given_back(path, now) if _serves(node) else path


def _way_back(node: NodeFacts) -> Move | None:
    """Return the way back into the queue of a node whose driver is untouched, or is no more what it should be."""
    if node.state not in UNDISTURBED and node.state is not State.POD_RESTART_REQUIRED:
        return None
    replaced = not _is_untouched(node)
    stays = replaced and node.state is State.POD_RESTART_REQUIRED and (node.driver_ready or not node.target)
    if stays or not _serves(node):
        return None
    clocks = {key: None for key in _CLOCKS if key in node.node.annotations}
    return Move(State.UPGRADE_REQUIRED, uncordon=is_ours(node), forced=replaced, annotations=clocks)


def _serves(node: NodeFacts) -> bool:
    """Tell whether a node has a driver that serves: the one that it had, or another one that is ready."""
    if node.driver is None or node.driver.deleting or node.driver_pods != 1:
        return False
    return node.driver.ready or _is_untouched(node)


def _is_untouched(node: NodeFacts) -> bool:
    """Tell whether the driver pod is the one that the upgrade was to replace."""
    if node.state in UNDISTURBED:
        return node.untouched
    return node.untouched and node.state is State.POD_RESTART_REQUIRED and not (node.in_step or node.record.forced)


def _hold(node: NodeFacts, policy: UpgradePolicy, meanwhile: Meanwhile = Meanwhile.NOTHING) -> Hold:
    return Hold(NoPolicy(policy.absent, meanwhile), node.record.since)
