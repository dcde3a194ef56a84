"""Which of Kubernetes' conditions about drains and maintenance (KEP-5683) a node is to have, and which of ours are to go.

They follow from what is written on the node already, as what others read there does: a node is called drained once its state
says so, not before. What somebody else says is true stays as it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpuward.model.notice import notice_of
from gpuward.model.record import Record, format_time
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.told import (
    DRAIN_IN_PROGRESS,
    DRAINED,
    MAINTENANCE_IN_PROGRESS,
    MAINTENANCE_PLANNED,
    OURS,
    TRUE,
    TYPES,
    NewCondition,
    ToldCondition,
)
from gpuward.model.views import NodeView

REQUESTED: Final = "AdminRequested"
COMPLETED: Final = "DrainCompleted"
"""Reasons, as the enhancement proposal has them."""
_REPLACING: Final = frozenset({State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED})
_DRAINING: Final = NewCondition(DRAIN_IN_PROGRESS, REQUESTED, OURS)
_IN_MAINTENANCE: Final = NewCondition(MAINTENANCE_IN_PROGRESS, REQUESTED, OURS)
_DRAINED: Final = NewCondition(DRAINED, COMPLETED, OURS)


class ConditionChange(NamedTuple):
    """Hold what changes about a node's conditions."""

    put: tuple[NewCondition, ...] = ()
    gone: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)


NO_CHANGE: Final = ConditionChange()


def change(node: NodeView, *, told: bool) -> ConditionChange:
    """Return what is to be changed about a node, whose upgrade others are `told` of or not.

    A condition that somebody else has set stays while it is True. One that is not is as good as none, unless it was said since
    the upgrade began: who says so then, as another drain does that begins, means this very moment.
    """
    wanted = {one.type: one for one in _wanted(node)} if told else {}
    if not (wanted or node.told):
        return NO_CHANGE
    there = {one.type: one for one in node.told}
    began = _began(node)
    put = tuple(new for new in wanted.values() if _is_missing(new, there.get(new.type), began))
    gone = tuple(kind for kind in TYPES if kind not in wanted and kind in there and there[kind].ours)
    return ConditionChange(put, gone)


def _is_missing(new: NewCondition, there: ToldCondition | None, began: float) -> bool:
    if there is None:
        return True
    if there.status == TRUE:
        return there.ours and there.message != new.message
    return not there.ours and there.since < began


def _began(node: NodeView) -> float:
    notice = notice_of(node.annotations) if node.state is State.UPGRADE_REQUIRED else None
    if notice is not None:
        return notice.given
    return node.record.started if node.record is not None else 0.0


def _wanted(node: NodeView) -> tuple[NewCondition, ...]:
    record, state = node.record, node.state
    if record is None or node.deleting:
        return ()
    if state is State.UPGRADE_REQUIRED:
        notice = notice_of(node.annotations)
        return () if notice is None else (
            NewCondition(MAINTENANCE_PLANNED, REQUESTED, f"{OURS}, not before {format_time(notice.begins)}"),)
    if not node.unschedulable:
        return ()
    if state in UNDISTURBED:
        return () if record.paused or record.restart or _is_quarantined(record) else (_DRAINING,)
    if state in _REPLACING:
        return (_IN_MAINTENANCE,) if record.restart else (_IN_MAINTENANCE, _DRAINED)
    if not node.upgrade_label:  # a pause takes the label of a failed node, and not its cordon
        state = record.state
    failed = record.failure is not None and record.failure.state in _REPLACING
    return (_IN_MAINTENANCE,) if state is State.FAILED and failed else ()


def _is_quarantined(record: Record) -> bool:
    """Tell whether the pods of a node stay, and are evicted no more."""
    return record.given_up is not None and record.given_up.quarantined
