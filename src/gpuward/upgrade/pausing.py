"""What becomes of nodes while `autoUpgrade` is false: who is under way may be validated and uncordoned, nobody is disturbed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import Action, PatchNode
from gpuward.model.placement import placement_of
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner
from gpuward.model.removal import DeletionUnseen
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, IN_PROGRESS, MAINTENANCE, UNDISTURBED, State
from gpuward.model.unserved import NotSelected
from gpuward.model.views import NodeView
from gpuward.model.waits import MovePaused, OperandPod, Paused, Plain
from gpuward.upgrade.done_or_failed import is_outdated, kept_driver, remembered_failure, unfinished
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.progress import NodeProgress, apply_move, begin, pause, remember, remember_driver, walk
from gpuward.upgrade.recovery import is_in_doubt
from gpuward.upgrade.scope import concerns
from gpuward.upgrade.step import Move
from gpuward.upgrade.still_offered import awaited, waited_for
from gpuward.upgrade.uncordon import has_come, is_kept, leftovers
from gpuward.upgrade.waits import driver_starting

_GENTLE = frozenset({State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED, State.DONE, State.FAILED})
"""Where a node may get while upgrades are paused: none of the steps to these disturbs a workload."""
ON_THE_WAY = UNDISTURBED | {State.POD_RESTART_REQUIRED}
"""Where a node gets through whose new driver serves it already."""
COLLECTOR: Final = ("whether its drivers go, too, is not known before the garbage collector has come by, which it does not while "
                    "the CRD of NVIDIADrivers is missing")
ENDED_WITHIN: Final = 60.0
"""Seconds after which kube-apiserver has ended a request, whoever waits for it."""


def finish_only(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
    """While upgrades are off, let a node under way be validated and uncordoned, and disturb nothing."""
    state, paused = node.node.state, _off(node, policy)
    if node.left and not is_kept(node):
        path = walk(begin(node, now), policy, now)
        hold = None if node.unserved is None else Hold(node.unserved, path.node.record.since or node.node.created)
        return msgspec.structs.replace(path, hold=path.hold or hold)
    if state not in IN_PROGRESS:
        return _at_rest(node, policy, paused, now)
    if node.left and node.unserved is not None:
        return pause(node, Hold(node.unserved, node.record.since), now)
    if node.state in MAINTENANCE:
        return pause(node, Hold(Plain(Reason.MAINTENANCE), node.record.since), now)
    if policy.unowned and node.untouched and node.loaded and (node.state in UNDISTURBED or _is_spared(node)):
        return _sent_back(node, paused, now)
    if policy.unowned and node.driver is not None and node.driver.orphan:
        if node.loaded and node.driver_pods == 1 and not (node.driver_leaving or policy.invalid):
            return _left_to_nobody(node, now)
        return pause(node, unfinished(node) or paused, now)
    # A label that somebody set by hand begins an upgrade that is to replace the driver pod of now, and evicts for it.
    come = has_come((begun := begin(node, now)).node)
    if come or state in _GENTLE or (state is State.POD_RESTART_REQUIRED and node.driver_ready):
        path = walk(begun, policy, now, within=_GENTLE | ON_THE_WAY if come else _GENTLE)
        if path.hold is None and path.node.state in IN_PROGRESS:
            return msgspec.structs.replace(path, hold=_off(path.node, policy))
        return path
    hold = _stands_still(node, policy, now)
    return msgspec.structs.replace(pause(node, hold, now), retry_at=hold.until)


def _asked_to_go(node: NodeFacts) -> float:
    """Return when a driver pod may have been asked to go last by a request that had no answer, or by an earlier leader."""
    refusal = node.refusals.get(node.driver.ref.uid) if node.driver is not None else None
    earlier = node.watched_since if node.watched_since > node.record.since else 0.0
    return max(earlier, refusal.at if refusal is not None else 0.0)


def _is_spared(node: NodeFacts) -> bool:
    """Tell whether a node was about to lose its driver, and does not."""
    return node.state is State.POD_RESTART_REQUIRED and node.driver_pods == 1 and not node.driver_leaving


def _sent_back(node: NodeFacts, paused: Hold, now: float) -> NodeProgress:
    """Put a node back into service that no NVIDIADriver is for any more, with the driver that nobody has touched: a minute
    later where that may have been asked to go. One that is tried again, and whose driver may be what failed, stays cordoned.
    """
    if node.state not in UNDISTURBED and now < (until := _asked_to_go(node) + ENDED_WITHIN):
        return msgspec.structs.replace(pause(node, paused, now), retry_at=until)
    clocks = {key: None for key in (names.WAIT_FOR_JOBS_SINCE,) if key in node.node.annotations}
    lifted = is_ours(node) and not is_in_doubt(node)
    path = apply_move(begin(node, now), Move(State.UPGRADE_REQUIRED, uncordon=lifted, annotations=clocks), now)
    return msgspec.structs.replace(path, hold=unfinished(path.node))


def _left_to_nobody(node: NodeFacts, now: float) -> NodeProgress:
    """End the upgrade of a node that nobody is to drive any more, and that has a driver pod which is ready: it serves on. That
    nobody has validated the driver stays known.
    """
    clocks = (names.WAIT_FOR_JOBS_SINCE, names.VALIDATION_SINCE, names.SAFE_LOAD)
    annotations = {key: None for key in clocks if key in node.node.annotations}
    move = Move(State.UNKNOWN, uncordon=is_ours(node), annotations=annotations, forced=not node.untouched)
    path = apply_move(begin(node, now), move, now)
    return msgspec.structs.replace(path, hold=unfinished(path.node))


def given_back(path: NodeProgress, now: float) -> NodeProgress:
    """Lift our cordon of a node that has a driver and gets no further: its state says that nobody has validated that."""
    if not is_ours(path.node):
        return path
    known = path.node.record
    record = msgspec.structs.replace(known, cordon=None, changing=0.0, course=known.course and known.course.uncordoned(now))
    return msgspec.structs.replace(
        path, node=msgspec.structs.replace(path.node, unschedulable=False, record=record), adopted=True)


def is_ours(node: NodeFacts) -> bool:
    """Tell whether a node carries our cordon."""
    return node.unschedulable and node.record.cordon is CordonOwner.GPUWARD and not node.cordon_is_foreign


def at_rest(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
    """Start the path of a node whose label may go. That it failed stays known, by somebody else's word too; what an upgrade that
    was broken off left goes, unless nobody knows the label.
    """
    told = node.node.record is None or node.by_hand
    path = begin(node, now) if node.state is State.FAILED and told else remember(node, now)
    if remembered_failure(path.node) is not None and path.node.record.failure is not None and not path.node.record.paused:
        record = msgspec.structs.replace(path.node.record, paused=now)
        path = msgspec.structs.replace(path, node=msgspec.structs.replace(path.node, record=record), adopted=True)
    path = remember_driver(path, policy, now)
    left = {} if node.node.state is None else leftovers(path.node)
    return msgspec.structs.replace(path, annotations={**left, **path.annotations})


def _at_rest(node: NodeFacts, policy: UpgradePolicy, paused: Hold, now: float) -> NodeProgress:
    """Say what keeps a node from being up to date that is not under way; what failed has failed still when the pause is over."""
    path = at_rest(node, policy, now)
    if (failed := remembered_failure(path.node)) is not None:
        return msgspec.structs.replace(path, hold=failed)
    if path.node.record.state in (State.FAILED, State.UPGRADE_REQUIRED) and path.node.up_to_date:
        path = given_back(path, now)
    waits = is_outdated(node) or _is_left_behind(node, policy) or (node.driver is None and node.withheld)
    hold = (paused if waits else unfinished(node)) if node.node.state in AT_REST else None
    if node.node.state is State.UPGRADE_REQUIRED:  # its label goes in this pass
        hold = paused
    if node.moving is not None:
        hold = Hold(MovePaused(placement_of(node.node.labels), node.moving), node.record.since)
    if node.node.state in AT_REST and (kept := kept_driver(node)) is not None:
        hold = kept
    if policy.unseen and (node.driver is not None or node.moving is not None):
        hold = Hold(DeletionUnseen(policy.driver, policy.unseen), node.record.since)
    elif node.driver is not None and (unjudged := _unjudged(node, policy)) is not None:
        hold = unjudged
    return msgspec.structs.replace(path, hold=hold)


def _is_left_behind(node: NodeFacts, policy: UpgradePolicy) -> bool:
    """Tell whether the driver is older than its NVIDIADriver, which adopts none; a ClusterPolicy may adopt one yet."""
    return bool(policy.driver) and node.unserved is None and node.driver is not None and node.driver.orphan and node.loaded


def _stands_still(node: NodeFacts, policy: UpgradePolicy, now: float) -> Hold:
    """Say why a node under way gets no further: upgrades are off, but a driver that does not start is not for that."""
    if node.unserved is not None and node.driver is None:
        return Hold(node.unserved, node.record.since)
    if node.state is State.POD_RESTART_REQUIRED and node.in_step and node.trouble and node.driver is not None:
        return driver_starting(node, node.driver, node.record.since)
    if node.leaving is not None:
        return awaited(waited_for(node, node.leaving), node, policy, node.record.changing, now)
    return _off(node, policy)


def _off(node: NodeFacts, policy: UpgradePolicy) -> Hold:
    """Say why upgrades are off: by a switch, or because no NVIDIADriver is for the node any more."""
    if (unjudged := _unjudged(node, policy)) is not None:
        return unjudged
    if policy.unseen:
        return Hold(DeletionUnseen(policy.driver, policy.unseen), node.record.since)
    if not policy.unowned or node.driver is None:
        return Hold(Paused(policy.switches), node.record.since)
    stops = node.driver.deleting
    return Hold(OperandPod(node.driver.ref, Reason.DRIVER_STOPPING) if stops else NotSelected(node.driver.ref), node.record.since)


def _unjudged(node: NodeFacts, policy: UpgradePolicy) -> Hold | None:
    """Say that a node is nobody's only until the garbage collector has shown how its NVIDIADriver went."""
    owner = node.node.labels.get(names.DRIVER_OWNER, "")
    return Hold(DeletionUnseen(owner, COLLECTOR), node.record.since) if owner in policy.unjudged else None


def labels_to_drop(snapshot: Snapshot, policy: UpgradePolicy, nodes: Iterable[NodeDecision]) -> tuple[Action, ...]:
    """Remove the state label, as documented, from every node that is not under way; our record of it stays.

    NVIDIADrivers keep their drivers without a ClusterPolicy, so that there is something for the labels to tell.
    """
    if policy.absent and policy.driver:
        return ()
    moved = {node.before.node.name for node in nodes if node.path.entered}
    return tuple(
        PatchNode(
            node.ref,
            labels={names.UPGRADE_STATE: None},
            expect_labels={names.UPGRADE_STATE: node.upgrade_label},
            has_annotations=node.has_annotations,
            why="automatic driver upgrades are off",
        )
        for name, node in sorted(snapshot.nodes.items())
        if _droppable(node) and concerns(policy, node) and name not in snapshot.unsettled
        and name not in moved
    )


def _droppable(node: NodeView) -> bool:
    return names.UPGRADE_STATE in node.labels and node.state is not None and node.state not in IN_PROGRESS
