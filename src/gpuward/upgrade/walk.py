"""Walk one node through as many states as its facts allow, and fold the steps into one patch and the actions after it."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.model.actions import Action, EventText, PatchNode
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Record, encode_record
from gpuward.model.states import IN_PROGRESS, State, check_transition
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import STEPS, Move, Rest, Step, Wait

ENTERED = "Successfully updated node state label to "


class Path(msgspec.Struct, frozen=True):
    """Hold what one node's steps came to: its facts after them, the states entered and what to write and do."""

    node: NodeFacts
    entered: tuple[State, ...] = ()
    annotations: dict[str, str | None] = {}
    events: tuple[EventText, ...] = ()
    actions: tuple[Action, ...] = ()
    adopted: bool = False
    """Whether the record is written though no state was entered: somebody else set the label that it now follows."""
    hold: Hold | None = None
    retry_at: float | None = None


def begin(node: NodeFacts, now: float) -> Path:
    """Start a path; a label that somebody else set is taken over into the record, and its clocks start now."""
    followed = node.state in IN_PROGRESS or node.state in (State.UPGRADE_REQUIRED, State.FAILED)
    if not followed or (node.node.record is not None and not node.by_hand):
        return Path(node)
    cordon = node.record.cordon
    if cordon is None and node.state in IN_PROGRESS and node.unschedulable and not node.cordon_is_foreign:
        cordon = CordonOwner.GPUWARD
    record = msgspec.structs.replace(
        node.record, state=node.state, since=now, started=now, forced=node.by_hand, failure=None, cordon=cordon
    )
    return Path(msgspec.structs.replace(node, record=record), adopted=True)


def walk(path: Path, policy: UpgradePolicy, now: float) -> Path:
    """Take steps until one waits."""
    while True:
        step = STEPS[path.node.state](path.node, policy, now) if path.node.state in STEPS else Rest()
        if not isinstance(step, Move):
            return _stop(path, step)
        path = take(path, step, now)


def take(path: Path, move: Move, now: float) -> Path:
    """Follow one move, as if its patch were written already.

    Raises:
        IllegalTransition: the move is not in the transition table.
    """
    node = path.node
    check_transition(node.state, move.to)
    cordoned = (node.unschedulable or move.cordon is not None) and not move.uncordon
    ended = move.to is State.DONE
    record = Record(
        state=move.to,
        since=now,
        started=now if move.started else node.record.started,
        target=move.target or node.record.target,
        cordon=None if ended or move.uncordon else move.cordon or node.record.cordon,
        forced=not ended and (move.forced or node.record.forced),
        failure=move.failure or (None if ended or move.started else node.record.failure),
    )
    changed = msgspec.structs.replace(node, state=move.to, record=record, unschedulable=cordoned)
    return msgspec.structs.replace(
        path,
        node=changed,
        entered=(*path.entered, move.to),
        annotations={**path.annotations, **move.annotations},
        events=(*path.events, *move.events, EventText(ENTERED + move.to)),
    )


def _stop(path: Path, step: Step) -> Path:
    if not isinstance(step, Wait):
        return path
    node = path.node
    if step.recordon:
        record = msgspec.structs.replace(node.record, cordon=node.record.cordon or CordonOwner.GPUWARD)
        node = msgspec.structs.replace(node, unschedulable=True, record=record)
    return msgspec.structs.replace(
        path,
        node=node,
        annotations={**path.annotations, **step.annotations},
        actions=step.actions,
        hold=step.hold,
        retry_at=step.retry_at,
    )


def actions_of(path: Path, before: NodeFacts) -> tuple[Action, ...]:
    """Return the patch that writes where the path came to, if it moved, and then the path's actions."""
    patch = _patch(path, before)
    return path.actions if patch is None else (patch, *path.actions)


def _patch(path: Path, before: NodeFacts) -> PatchNode | None:
    node = before.node
    turned = path.node.unschedulable != node.unschedulable
    if not path.entered and not path.adopted and not path.annotations and not turned:
        return None
    record = {names.UPGRADE_RECORD: encode_record(path.node.record)}
    label = str(path.node.state) if path.node.state is not State.UNKNOWN else None
    return PatchNode(
        node=node.ref,
        labels={names.UPGRADE_STATE: label} if path.entered else {},
        annotations={**path.annotations, **record},
        unschedulable=path.node.unschedulable if turned else None,
        expect_labels={names.UPGRADE_STATE: node.labels.get(names.UPGRADE_STATE)},
        expect_annotations={names.UPGRADE_RECORD: node.annotations.get(names.UPGRADE_RECORD)},
        expect_unschedulable=node.unschedulable,
        has_annotations=node.has_annotations,
        entered=path.entered,
        events=path.events,
        why=f"{before.state or 'unknown'} -> {path.node.state or 'unknown'}",
    )
