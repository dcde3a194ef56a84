"""When a node gets its driver, as far as one pass tells."""

from __future__ import annotations

from enum import StrEnum

from gpuward.model.plan import Hold, NodeStatus
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.report.groups import Group, group_of
from gpuward.upgrade.remedies import ON_THE_WAY


class When(StrEnum):
    """Say when a node gets its driver, as far as one pass tells; in the order in which nodes have their turn."""

    UNDER_WAY = "under way"
    NOW = "starts now"
    NEXT = "has its turn later"
    WAITS = "waits"
    STOPPED = "is stopped"
    HELD = "is held"
    SKIPPED = "is skipped"
    NEVER = "has nothing to do"


def when_of(status: NodeStatus) -> When:
    """Return when a node gets its driver, by what one pass says of it alone."""
    if status.quarantined:
        return When.HELD
    if status.before in IN_PROGRESS:
        return When.UNDER_WAY
    if status.state in IN_PROGRESS:
        return When.NOW
    hold = status.hold
    passed_over = hold is not None and hold.reason in (Reason.IDLE_AWAITED, Reason.GANG_SPARED)
    placed = status.turn or status.state is State.FAILED or passed_over
    if hold is not None and not status.up_to_date and _ends_by_itself(hold) and placed:
        return When.NEXT
    if hold is not None and not status.up_to_date:
        return _without_turn(status, hold)
    return When.NEVER


def _without_turn(status: NodeStatus, hold: Hold) -> When:
    """Say how a node stands that has no place in the queue, in the words of `gpuward status`."""
    group = group_of(status)
    if group is Group.SKIPPED:
        return When.SKIPPED
    if hold.reason.needs_person or group in (Group.HELD, Group.FAILED):
        return When.HELD
    if group in (Group.STOPPED, Group.OLDER):
        return When.STOPPED
    waits = group is Group.WAITING or hold.reason.ends_by_itself or hold.reason in ON_THE_WAY
    return When.WAITS if waits else When.HELD


def _ends_by_itself(hold: Hold) -> bool:
    if hold.reason is Reason.WINDOW_SHUT:  # some never open
        return hold.until is not None
    return hold.reason.ends_by_itself or hold.reason is Reason.BUDGET_USED_UP
