"""Walk one node through as many states as its facts allow, and fold the steps into one patch and the actions after it."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import msgspec

from gpuward import names
from gpuward.errors import IllegalTransition
from gpuward.model.actions import Action, EventText
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Record, not_ahead
from gpuward.model.states import AT_REST, IN_PROGRESS, TRANSITIONS, UNDISTURBED, State, check_transition
from gpuward.model.views import Ref
from gpuward.upgrade.domain_memory import with_domain
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.loaded import with_loaded
from gpuward.upgrade.noting import note
from gpuward.upgrade.opportunities import with_idleness
from gpuward.upgrade.proven import first_done
from gpuward.upgrade.step import STEPS, Move, Rest, Step
from gpuward.upgrade.still_offered import offers_gpus
from gpuward.upgrade.uncordon import release

ENTERED = "Successfully updated node state label to "

_RESTARTING = frozenset({State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED})
"""States in which it matters that only the driver pod is restarted."""


class NodeProgress(msgspec.Struct, frozen=True):
    """Hold what one node's steps came to: its facts after them, the states entered and what to write and do."""

    node: NodeFacts
    entered: tuple[State, ...] = ()
    annotations: dict[str, str | None] = {}
    labels: Mapping[str, str | None] = {}
    """Labels beside that of the state."""
    events: tuple[EventText, ...] = ()
    pod_events: tuple[tuple[Ref, EventText], ...] = ()
    """Events about pods of the node."""
    actions: tuple[Action, ...] = ()
    adopted: bool = False
    """Whether the record is written though no state was entered: somebody else set the label that it now follows."""
    hold: Hold | None = None
    retry_at: float | None = None
    turn: int = 0
    """The node's place in the queue, from 1, where it is held there."""


def begin(node: NodeFacts, now: float) -> NodeProgress:
    """Start a path; times to come, which a clock that is ahead has written, are brought to now."""
    record = not_ahead(node.record, now)
    if record is node.record:
        return _begun(node, now)
    return msgspec.structs.replace(_begun(msgspec.structs.replace(node, record=record), now), adopted=True)


def _begun(node: NodeFacts, now: float) -> NodeProgress:
    """Start a path; a label that somebody else set is taken over into the record, and its clocks start now.

    After a pause the clocks of the node's state go on from where they stood.
    """
    if node.record.paused and not (node.by_hand or _is_unknown(node)):
        return _resumed(node, max(0.0, now - node.record.paused), now)
    followed = node.state in IN_PROGRESS or node.state in (State.UPGRADE_REQUIRED, State.FAILED)
    if not followed or (node.node.record is not None and not (node.by_hand or _is_unknown(node))):
        return remember(node, now)
    owner = _owner_found(node)
    record = msgspec.structs.replace(
        node.record,
        state=node.state,
        since=now,
        started=now,
        pods=_pods_found(node),
        target=node.target or node.record.target,
        driver=node.record.driver or (node.node.labels.get(names.DRIVER_OWNER, "") if node.state in IN_PROGRESS else ""),
        forced=node.by_hand and not _is_left_behind(node),
        failure=None,
        cordon=owner,
        paused=0.0,
        restart=node.target_digest if _is_mere_restart(node) else "",
        returns=0,
        loaded=node.loaded_digest,
        lifted=0,
        proven=first_done(node),
        course=None,
        given_up=None,
    )
    memory: dict[str, str | None] = {names.INITIALLY_UNSCHEDULABLE: "true"} if owner is CordonOwner.OTHER else {}
    return NodeProgress(_changed(node, memory, record=record), annotations=memory, adopted=True)


def remember(node: NodeFacts, now: float) -> NodeProgress:
    """Start a path; a cordon of ours that somebody lifted is forgotten, so that one that turns up later is theirs."""
    if node.unschedulable or node.record.cordon is not CordonOwner.GPUWARD:
        return NodeProgress(node)
    lifted = node.record.lifted + (node.state in UNDISTURBED or node.state is State.POD_RESTART_REQUIRED)
    course = node.record.course and node.record.course.uncordoned(now)
    record = msgspec.structs.replace(node.record, cordon=None, changing=0.0, lifted=lifted, course=course)
    return NodeProgress(_changed(node, {}, record=record, leaving=None), adopted=True)


def _is_unknown(node: NodeFacts) -> bool:
    """Tell whether all that is remembered of a node under way, as others put it there, is that its labels change."""
    return node.state in IN_PROGRESS and not node.record.started


def _is_left_behind(node: NodeFacts) -> bool:
    """Tell whether a node waits since its driver pod lost its DaemonSet: if it gets that back, there is nothing to do."""
    return node.state is State.UPGRADE_REQUIRED and node.driver is not None and node.driver.orphan


def _pods_found(node: NodeFacts) -> tuple[str, ...]:
    """Return the pods that a node had before an upgrade that is taken over. Where that may have replaced the driver pod, the one
    that is there has come since, unless validators confirm it.
    """
    restarted = node.state is State.POD_RESTART_REQUIRED and node.in_step
    if node.by_hand or node.validated or not (restarted or node.state is State.VALIDATION_REQUIRED):
        return node.pods_there
    return tuple(uid for uid in node.pods_there if node.driver is None or uid != node.driver.uid)


def _is_mere_restart(node: NodeFacts) -> bool:
    """Tell whether a node that is taken over may have been on the way that leaves workloads where they are."""
    return node.state is State.POD_RESTART_REQUIRED and not node.by_hand and (node.same_driver or node.in_step)


def _resumed(node: NodeFacts, stood: float, now: float) -> NodeProgress:
    known = remember(node, now).node.record
    record = msgspec.structs.replace(known, since=known.since + stood, paused=0.0)
    jobs = {} if node.jobs_since is None else {names.WAIT_FOR_JOBS_SINCE: str(ceil(node.jobs_since + stood))}
    return NodeProgress(_changed(node, jobs, record=record), annotations={**jobs}, adopted=True)


def pause(node: NodeFacts, hold: Hold, now: float) -> NodeProgress:
    """Hold a node under way while upgrades are off, and let its clock stand still until they are on again.

    A node that gpuward does not remember, or that somebody relabelled, has no clock yet.
    """
    path = msgspec.structs.replace(remember(node, now), hold=hold)
    if node.record.paused or node.node.record is None or node.by_hand or _is_unknown(node):
        return path
    record = msgspec.structs.replace(path.node.record, paused=now)
    return msgspec.structs.replace(path, node=msgspec.structs.replace(path.node, record=record), adopted=True)


def _owner_found(node: NodeFacts) -> CordonOwner | None:
    """Say whose cordon a node carries that is taken over.

    In mid-upgrade, without a memory of ours and without NVIDIA's of an earlier cordon, it was the upgrade that cordoned it. Where
    we do remember the node, and no cordon of ours on it, somebody else did. A node that waits is judged when it is admitted.
    """
    if not node.unschedulable:
        return None
    if node.record.cordon is not None or node.state is State.UPGRADE_REQUIRED:
        return node.record.cordon
    ours = node.node.record is None and names.INITIALLY_UNSCHEDULABLE not in node.node.annotations
    return CordonOwner.GPUWARD if ours else CordonOwner.OTHER


def _changed(node: NodeFacts, annotations: Mapping[str, str | None], **facts: object) -> NodeFacts:
    """Return the facts as they will be once annotations are patched, so that a later step does not act on them again."""
    if annotations:
        merged = {**node.node.annotations, **annotations}
        kept = {key: value for key, value in merged.items() if value is not None}
        facts["node"] = msgspec.structs.replace(node.node, annotations=kept)
    return msgspec.structs.replace(node, **facts)


def walk(path: NodeProgress, policy: UpgradePolicy, now: float, within: frozenset[State] = frozenset(State)) -> NodeProgress:
    """Take steps until one waits, or would leave the states that are allowed now.

    Raises:
        IllegalTransition: a move is not in the transition table, or the steps go round in circles.
    """
    while len(path.entered) <= 2 * len(TRANSITIONS):
        if (released := release(path.node)) is not None:
            waits = offers_gpus(path.node, released, policy, now)
            if waits is not None and not isinstance(waits, Move):
                return _stop(path, waits, policy, now)
            path = apply_move(path, waits or released, now)
            if waits is None:
                return path
            continue
        step = STEPS[path.node.state](path.node, policy, now)
        if not isinstance(step, Move):
            return _stop(path, step, policy, now)
        if step.to not in within:
            return path
        path = apply_move(path, step, now)
    raise IllegalTransition(f"node {path.node.node.name} goes round in circles: {', '.join(path.entered)}")


def apply_move(path: NodeProgress, move: Move, now: float) -> NodeProgress:
    """Follow one move, as if its patch were written already.

    Raises:
        IllegalTransition: the move is not in the transition table.
    """
    node = path.node
    if not node.left or node.state is not State.UNKNOWN:
        check_transition(node.state, move.to)
    cordoned = (node.unschedulable or move.cordon is not None) and not move.uncordon
    ended = move.to in AT_REST
    course, history = note(node, move, now)
    record = Record(
        state=move.to,
        since=_since(node, move, now),
        started=now if move.started else node.record.started,
        pods=_pods_known(node, move),
        target=move.target or (node.target if node.arrived else "") or node.record.target,
        driver="" if ended else move.driver or node.record.driver,
        cordon=None if ended or not cordoned else move.cordon or node.record.cordon,
        forced=move.forced or (not ended and node.record.forced and node.state not in AT_REST),
        failure=move.failure or (None if move.forget or (ended and not move.forced) else node.record.failure),
        restart=move.restart or (node.record.restart if move.to in _RESTARTING else ""),
        returns=0 if ended or move.started else node.record.returns + move.returned,
        loaded=node.loaded_digest,
        lifted=0 if ended or move.started else node.record.lifted,
        domain=node.record.domain,
        stopping=node.record.stopping,
        changing=0.0 if ended or not cordoned else node.record.changing,
        wave_labels=move.wave_labels if move.started else node.record.wave_labels,
        gangs=move.gangs if move.started else node.record.gangs,
        proven=first_done(node),
        waiting=0.0 if ended or (move.started and node.requested) else node.record.waiting or (now if move.patient else 0.0),
        course=course,
        given_up=move.given_up or (node.record.given_up if _is_still_given_up(node, move) else None),
    )
    annotations = {**move.annotations, **history}
    changed = _changed(node, annotations, state=move.to, record=record, unschedulable=cordoned)
    return msgspec.structs.replace(
        path,
        node=changed,
        entered=(*path.entered, move.to),
        annotations={**path.annotations, **annotations},
        events=(*path.events, *move.events, *([EventText(ENTERED + move.to)] if move.to else [])),
    )


def _is_still_given_up(node: NodeFacts, move: Move) -> bool:
    """Tell whether a node that was given up still is: a pause takes its label, and no more. One in quarantine, whose label
    somebody edits, would wait under our cordon with nobody asking its pods to go.
    """
    quarantined = node.record.given_up is not None and node.record.given_up.quarantined
    return move.to is State.UPGRADE_REQUIRED and node.state not in IN_PROGRESS and not quarantined


def _since(node: NodeFacts, move: Move, now: float) -> float:
    """Return since when a node is in its state: one that only lost its label, as in a pause, has been done all the time."""
    kept = node.state is State.UNKNOWN and node.record.state is move.to is State.DONE and move.target in ("", node.record.target)
    return node.record.since if kept and node.record.since else now


def _pods_known(node: NodeFacts, move: Move) -> tuple[str, ...] | None:
    """Return the pods by which later ones are told apart: those of a node that is admitted, that is done and validated, that
    leaves the fleet, or that begins to wait and of which none are known.
    """
    done = move.to is State.DONE and (node.validated or node.record.pods is None)
    begins = node.state in AT_REST and node.record.pods is None
    return node.pods_there if move.started or done or begins or move.to is State.UNKNOWN else node.record.pods


def _stop(path: NodeProgress, step: Step, policy: UpgradePolicy, now: float) -> NodeProgress:
    if isinstance(step, Move):
        return path
    path = remember_driver(_believed(path, now), policy, now)
    if isinstance(step, Rest):
        return msgspec.structs.replace(path, annotations={**path.annotations, **step.annotations})
    node, annotations = path.node, {**path.annotations, **step.annotations}
    if step.recordon:
        course = node.record.course and node.record.course.cordoned(now)
        record = msgspec.structs.replace(node.record, cordon=CordonOwner.GPUWARD, course=course)
        node = msgspec.structs.replace(node, unschedulable=True, record=record)
        if names.INITIALLY_UNSCHEDULABLE in node.node.annotations:
            annotations[names.INITIALLY_UNSCHEDULABLE] = None
    if step.stopping:
        node = msgspec.structs.replace(node, record=msgspec.structs.replace(node.record, stopping=step.stopping))
    return msgspec.structs.replace(
        path,
        node=node,
        annotations=annotations,
        labels={**path.labels, **step.labels},
        actions=step.actions,
        hold=step.hold,
        retry_at=step.retry_at,
    )


def remember_driver(path: NodeProgress, policy: UpgradePolicy, now: float) -> NodeProgress:
    """Remember the driver that a node came to have without an upgrade, or before that was remembered, and the node's domain."""
    record = with_domain(path.node, with_loaded(path.node, now), policy)
    record = with_idleness(path.node, record, policy, now)
    if record == path.node.record:
        return path
    return msgspec.structs.replace(path, node=msgspec.structs.replace(path.node, record=record), adopted=True)


def _believed(path: NodeProgress, now: float) -> NodeProgress:
    """Take people's word for it that a node is done, about which there is nothing to do: what was remembered is over."""
    if path.node.state is not State.DONE or not path.node.by_hand or path.node.just_entered:
        return path
    before = path.node.record
    record = Record(
        State.DONE, since=now, started=before.started, pods=before.pods, target=before.target, loaded=before.loaded,
        domain=before.domain, stopping=before.stopping, wave_labels=before.wave_labels, proven=first_done(path.node),
        gangs=before.gangs)
    return msgspec.structs.replace(path, node=msgspec.structs.replace(path.node, record=record), adopted=True)
