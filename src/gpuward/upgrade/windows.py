"""Whether the windows of a rollout let nodes start now: the union of those that allow it, without those that deny it.

Schedules are read by cronsim, with daylight saving as in Debian's cron: an opening in the hour that is left out comes right after
it, and one in the hour that comes twice comes once. A CronJob leaves the first out: nobody wants to lose a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from gpuward.model.windows import OPEN, UTC_NAME, Window, WindowState

MOST_OPENINGS: Final = 50
"""Openings that follow each other without a gap, which are looked at for the end of the last: it is looked for again there."""
MOST_TRIED: Final = 100
"""Windows that open and are shut by others, before it is said that none ever opens; as many that are open one after the other."""
MOST_SHORT: Final = 500
"""Windows in a row that shut too soon, before it is said that none is long enough."""
LOOKED_AGAIN: Final = 3600.0
"""Seconds after which what never changes is looked at again."""
UNREADABLE: Final = WindowState(opened=False)
"""The state of windows that make no sense, as somebody has edited what is remembered of them: nothing starts."""


class _Known(msgspec.Struct):
    """Hold the last state that windows were found in: it stays until it changes, whoever asks."""

    since: float = 0.0
    state: WindowState | None = None


def windows_of(own: tuple[Window, ...], common: tuple[Window, ...]) -> tuple[Window, ...]:
    """Return the windows that hold for a wave: its own that allow starts, or else the rollout's, and all that deny them."""
    allowing = [one for one in own if one.allows] or [one for one in common if one.allows]
    return (*allowing, *(one for one in (*own, *common) if not one.allows))


def window_state(windows: tuple[Window, ...], now: float) -> WindowState:
    """Return whether nodes may start now, and when that changes."""
    if not windows:
        return OPEN
    known = _known(windows)
    if known.state is not None and known.since <= now < (known.state.changes or known.since + LOOKED_AGAIN):
        return known.state
    known.since, known.state = now, _state(windows, now)
    return known.state


def windows_now(windows: tuple[Window, ...], takes: float, now: float) -> WindowState:
    """Return whether nodes may start now that have to be back in so many seconds; any time will do with 0."""
    return with_room(window_state(windows, now), windows, takes, now)


def with_room(state: WindowState, windows: tuple[Window, ...], takes: float, now: float) -> WindowState:
    """Return the state for nodes that have to be back before windows shut, and take so many seconds; any time will do with 0."""
    if not takes or (state.opened and (state.changes is None or state.changes - now >= takes)):
        return state
    shuts = state.changes if state.opened else None
    if state is UNREADABLE:
        return WindowState(False, None, state.zone, shuts, takes)
    known = _known_long(windows, takes)
    if known.state is None or not known.since <= now < (known.state.changes or known.since + LOOKED_AGAIN):
        known.since, known.state = now, WindowState(False, _long_enough(windows, takes, now))
    return WindowState(False, known.state.changes, state.zone, shuts, takes)


@lru_cache(maxsize=64)
def _known_long(windows: tuple[Window, ...], takes: float) -> _Known:
    return _Known()


def _long_enough(windows: tuple[Window, ...], takes: float, now: float) -> float | None:
    """Return the next moment from which windows are open for so many seconds; None where none is found."""
    allowing, denying, at = [one for one in windows if one.allows], [one for one in windows if not one.allows], now
    for _ in range(MOST_SHORT):
        opens = _opens(allowing, denying, at)
        shuts = _shuts(allowing, denying, opens) if opens is not None else None
        if opens is None or shuts is None or shuts - opens >= takes:
            return opens
        at = shuts
    return None


@lru_cache(maxsize=64)
def _known(windows: tuple[Window, ...]) -> _Known:
    return _Known()


def _state(windows: tuple[Window, ...], now: float) -> WindowState:
    zone = windows[0].zone
    allowing, denying = [one for one in windows if one.allows], [one for one in windows if not one.allows]
    try:
        ZoneInfo(zone)
        opens = _opens(allowing, denying, now)
        if opens is None or opens > now:
            return WindowState(False, opens, zone)
        return WindowState(True, _shuts(allowing, denying, now), zone)
    except Exception:  # a schedule, a zone or a time that nobody checked
        return UNREADABLE


def _opens(allowing: Sequence[Window], denying: Sequence[Window], at: float) -> float | None:
    """Return the first moment, not before `at`, at which nodes may start; None where none is found."""
    for _ in range(MOST_TRIED):
        denied = [until for inside, until in (_single(one, at) for one in denying) if inside and until is not None]
        if denied:
            at = max(denied)
            continue
        allowed = [_single(one, at) for one in allowing]
        if not allowing or any(inside for inside, _ in allowed):
            return at
        begins = [until for _, until in allowed if until is not None]
        if not begins:
            return None
        at = min(begins)
    return None


def _shuts(allowing: Sequence[Window], denying: Sequence[Window], at: float) -> float | None:
    """Return when nodes that may start `at` a moment may no more; None where that never comes."""
    denied = min((until for _, until in (_single(one, at) for one in denying) if until is not None), default=None)
    if not allowing:
        return denied
    for _ in range(MOST_TRIED):
        ends = [until for inside, until in (_single(one, at) for one in allowing) if inside and until is not None]
        if not ends or (denied is not None and at >= denied):
            break
        at = max(ends)
    return at if denied is None else min(at, denied)


def _single(window: Window, at: float) -> tuple[bool, float | None]:
    """Return whether a moment is inside a window, and when the window ends, or opens, next."""
    if not window.schedule:
        if at >= window.end:
            return False, None
        return at >= window.start, window.start if at < window.start else window.end
    begins = openings(window, at - window.duration)
    first = next(begins, None)
    if first is None or first > at:
        return False, first
    end = first + window.duration
    for begin in islice(begins, MOST_OPENINGS):
        if begin > end:
            break
        end = begin + window.duration
    return True, end


def openings(window: Window, after: float) -> Iterator[float]:
    """Yield the moments after one at which a window with a schedule opens.

    Raises:
        cronsim.CronSimError: the schedule is none.
        KeyError: there is no such time zone.
    """
    zone = UTC if window.zone == UTC_NAME else ZoneInfo(window.zone)
    for opening in CronSim(window.schedule, datetime.fromtimestamp(after, zone)):
        moment = opening.timestamp()
        if moment > after:
            yield moment
