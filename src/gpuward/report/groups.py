"""The groups that a fleet falls into, by what one pass says of each node: every node is in one."""

from __future__ import annotations

from enum import StrEnum

from gpuward.model.plan import Hold, NodeStatus
from gpuward.model.reasons import BESIDE_THE_DRIVER, Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.waves import WaveSoaking


class Group(StrEnum):
    """Name what a node has in common with others, in the order in which people look at them."""

    FAILED = "failed"
    HELD = "held"
    NOT_READY = "not ready"
    UNWELL = "with a failing operand"
    UNDER_WAY = "under way"
    STOPPED = "stopped"
    WAITING = "waiting"
    OLDER = "on another driver"
    SKIPPED = "skipped"
    UP_TO_DATE = "up to date"

    @property
    def is_exception(self) -> bool:
        """Tell whether somebody may have to do something about its nodes, or watches them."""
        return self in (Group.FAILED, Group.HELD, Group.NOT_READY, Group.UNWELL, Group.UNDER_WAY)


def group_of(status: NodeStatus) -> Group:
    """Return the group of a node."""
    reason = status.hold.reason if status.hold is not None else None
    if status.failed:
        return Group.FAILED
    if status.state in IN_PROGRESS and not status.quarantined:
        return Group.UNDER_WAY
    if reason in (Reason.WORKLOAD_KEPT, Reason.OPERANDS_KEPT):
        return Group.HELD
    if status.up_to_date:
        return Group.UNWELL if reason in BESIDE_THE_DRIVER else Group.UP_TO_DATE
    if reason is Reason.SKIPPED:
        return Group.SKIPPED
    if reason is not None and reason.needs_person:
        return Group.HELD
    if reason is Reason.IMAGE_NOT_STAGED or _starts_in_time(status.hold):
        return Group.WAITING
    if reason is not None and reason.concerns_fleet and not reason.is_turn and reason is not Reason.TEMPLATE_SETTLING:
        return Group.OLDER if reason is Reason.PAUSED and status.outdated else Group.STOPPED
    waits = status.state is State.UPGRADE_REQUIRED and reason is not Reason.DRIVER_POD_MISSING  # that has no deadline yet
    if waits or (reason is not None and reason.is_turn):
        return Group.WAITING
    return Group.OLDER if status.outdated else Group.NOT_READY


def _starts_in_time(hold: Hold | None) -> bool:
    """Tell whether time alone lets a node start: not where somebody has to approve of a wave when it has soaked."""
    if hold is not None and hold.reason is Reason.ANALYSIS_RUNNING:
        return True
    if hold is None or hold.until is None or (isinstance(hold.what, WaveSoaking) and hold.what.approval):
        return False
    return hold.reason in (Reason.WINDOW_SHUT, Reason.WAVE_SOAKING)
