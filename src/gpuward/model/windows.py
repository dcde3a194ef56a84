"""When nodes may start: windows of a RolloutPolicy, and what a node waits for while they are shut."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuward.model.reasons import Reason

UTC_NAME = "UTC"


class Window(msgspec.Struct, frozen=True):
    """Hold one window: `schedule` (cron, five fields) and `duration`, or `start` and `end`. Times are in seconds since 1970."""

    allows: bool = True
    """Whether nodes may start in it and not outside, or may not in it."""
    schedule: str = ""
    duration: float = 0.0
    start: float = 0.0
    end: float = 0.0
    zone: str = UTC_NAME
    """The time zone in which the schedule is read, by its IANA name."""


class WindowState(msgspec.Struct, frozen=True):
    """Say whether nodes may start at a moment, and when that changes next; None where it never does."""

    opened: bool = True
    changes: float | None = None
    zone: str = UTC_NAME
    """In which people read that moment: that of the first window."""


OPEN = WindowState()
"""The state of a rollout without windows."""


class WindowShut(msgspec.Struct, frozen=True):
    """Wait for the next window in which nodes may start."""

    reason: ClassVar = Reason.WINDOW_SHUT
    opens: float | None
    zone: str
