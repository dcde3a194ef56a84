"""When nodes may start: windows of a RolloutPolicy, and what a node waits for while they are shut."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from zoneinfo import ZoneInfo

import msgspec

from gpuward.model.estimate import roughly
from gpuward.model.reasons import Reason

UTC_NAME = "UTC"


class WindowFit(StrEnum):
    """Say which nodes start in a window, by when they are likely to be back."""

    OFF = "Off"
    """Any, as long as it is open."""
    P90 = "P90"
    """Those for whose upgrade it stays open long enough, as nine of ten take."""


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
    shuts: float | None = None
    """When windows that are open shut too soon for a node that would start now."""
    takes: float = 0.0
    """Seconds that nine of ten upgrades take at most, where nodes only start that are likely to be back in time."""


OPEN = WindowState()
"""The state of a rollout without windows."""


class WindowShut(msgspec.Struct, frozen=True):
    """Wait for the next window in which nodes may start."""

    reason: ClassVar = Reason.WINDOW_SHUT
    opens: float | None
    zone: str
    shuts: float | None = None
    """When the windows shut that are open, too soon."""
    takes: float = 0.0
    """Seconds for which they have to stay open; 0 where nobody asks for that."""
    wave: str = ""
    """The wave that has windows of its own; empty where those of the rollout hold."""
    notice: float = 0.0
    """Seconds of it that are for a notice, which is given in the window; 0 where none has to be."""


def moment_in(at: float, zone: str) -> str:
    """Return a moment as people read it in a time zone; with its distance from UTC only in an hour that comes twice."""
    moment = datetime.fromtimestamp(at, ZoneInfo(zone))
    twice = moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()
    return f"{(moment if twice else moment.replace(tzinfo=None)).isoformat(' ', 'minutes')} ({zone})"


def opening(what: WindowShut) -> str:
    """Say when windows open in which a node may start."""
    opens = moment_in(what.opens, what.zone) if what.opens is not None else ""
    if not what.takes:
        never = f"they never open: see {'spec.waves' if what.wave else 'spec.windows'}"
        return f"they open at {opens}" if opens else never
    upgrade = f"an upgrade, as nine of ten take up to {roughly(what.takes - what.notice)}"
    if what.notice:
        upgrade = f"a notice of {roughly(what.notice)}" + (f" and {upgrade}" if what.takes > what.notice else "")
    if what.shuts is not None:
        then = f"the next that is long enough opens at {opens}" if opens else "none that comes is long enough"
        return f"the one that is open shuts at {moment_in(what.shuts, what.zone)}, too soon for {upgrade}; {then}"
    pause = "," if what.takes > what.notice else ""
    then = f"the next that is long enough for {upgrade}{pause} opens at {opens}"
    return then if opens else f"none that comes is long enough for {upgrade}"
