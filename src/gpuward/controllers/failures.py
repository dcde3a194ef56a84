"""What failed lately: when it is tried again, and what people have been told of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpuward.model.actions import (
    Action,
    ApplyObject,
    DeleteObject,
    DeletePod,
    EvictPod,
    PatchAnnotations,
    PatchConditions,
    PatchNode,
    PatchStatus,
    SetOwner,
)
from gpuward.model.backoff import backoff
from gpuward.model.passes import Outcome

FIRST_RETRY: Final = 0.5
"""Seconds until a failed action is tried again; it doubles up to LAST_RETRY."""
LAST_RETRY: Final = 30.0
WINDOW: Final = 60.0
"""Seconds in which writes of one lane are counted."""
MOST_WRITES: Final = 30
"""Writes of one lane in that time: more of them mean that somebody else keeps undoing them."""
CALM: Final = 120.0
"""Seconds without a write after which nobody undoes the writes of a lane any more."""
_COUNTED: Final = (ApplyObject, DeleteObject, DeletePod, PatchAnnotations, PatchConditions, PatchNode, PatchStatus, SetOwner)
UNDONE: Final = "it was written {count} times within a minute: somebody else, or another setting, keeps changing it back"


def retry_after(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    return backoff(failures, FIRST_RETRY, LAST_RETRY)


class _Trouble(msgspec.Struct, frozen=True):
    count: int
    until: float
    error: str


class Failures:
    """Let a lane whose last action failed rest, whatever wakes the loop meanwhile: a write that is refused is not repeated at
    every change of the cluster.

    Losing it costs one early attempt per lane, so it lives in memory only. Refused evictions have a back-off of their own.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Trouble] = {}
        self._written: dict[str, deque[float]] = {}
        """When each lane was written to lately."""
        self._undone: dict[str, float] = {}
        """Lanes whose writes somebody keeps undoing, with the time of the last one."""

    def due(self, actions: Iterable[Action], now: float) -> list[Action]:
        """Return the actions whose lanes do not rest; forget old troubles that nobody tries to mend any more.

        No rest is longer than LAST_RETRY: one that seems to be began before the clock was set back, and ends now.
        """
        recent = {lane: trouble for lane, trouble in self._lanes.items() if now < trouble.until + LAST_RETRY}
        self._lanes = {lane: trouble if trouble.until <= now + LAST_RETRY else msgspec.structs.replace(trouble, until=now)
                       for lane, trouble in recent.items()}
        return [action for action in actions if action.lane not in self._lanes or self._lanes[action.lane].until <= now]

    def take(self, outcomes: Sequence[Outcome], now: float) -> list[Outcome]:
        """Take how actions ended; return the failures that people have not been told of: one for each different error."""
        failed = {outcome.action.lane: outcome for outcome in outcomes
                  if outcome.error and not outcome.called_off and not isinstance(outcome.action, EvictPod)}
        told = {trouble.error for trouble in self._lanes.values()}
        before = self._lanes
        tried = {outcome.action.lane for outcome in outcomes if not outcome.dropped}
        self._lanes = {lane: trouble for lane, trouble in before.items() if lane not in tried}
        news = []
        for lane, outcome in failed.items():
            # A server that has too much to do says itself when to come again: that is no failure of what was asked.
            count = (before[lane].count if lane in before else 0) + (not outcome.wait)
            rest = min(outcome.wait, LAST_RETRY) or retry_after(count)
            self._lanes[lane] = _Trouble(count, now + rest, outcome.error)
            if outcome.error not in told:
                told.add(outcome.error)
                news.append(outcome)
        return [*news, *self._repeated(outcomes, now)]

    def _repeated(self, outcomes: Sequence[Outcome], now: float) -> list[Outcome]:
        """Let lanes rest that are written to again and again; return what is new about that."""
        for lane in [lane for lane, times in self._written.items() if not now - WINDOW < times[-1] <= now]:
            del self._written[lane]
        self._undone = {lane: at for lane, at in self._undone.items() if now - CALM < at <= now}
        news = []
        for outcome in outcomes:
            if outcome.error or outcome.dropped or outcome.idle or not isinstance(outcome.action, _COUNTED):
                continue
            lane = outcome.action.lane
            times = self._written.setdefault(lane, deque(maxlen=MOST_WRITES))
            times.append(now)
            is_new = lane not in self._undone
            if lane in self._lanes or (is_new and (len(times) < MOST_WRITES or now - times[0] >= WINDOW)):
                continue
            error = UNDONE.format(count=MOST_WRITES)
            self._undone[lane], self._lanes[lane] = now, _Trouble(1, now + LAST_RETRY, error)
            news += [msgspec.structs.replace(outcome, error=error)] if is_new else []
        return news

    def retry_at(self, now: float) -> float | None:
        """Return when the first of the resting lanes may go on."""
        return min((trouble.until for trouble in self._lanes.values() if trouble.until > now), default=None)
