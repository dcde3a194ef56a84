"""The one queue that drives everything in the simulation: who looks at what, when.

A handler is called with a key and looks at the world as it then is; keys that are added again before their turn are
looked at once. Nothing here depends on how long things take in real time, so equal seeds give equal runs.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING, Final

from kubesandbox.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[str, str]

BATCH: Final = 256
"""So many keys are handled before the loop may serve somebody else."""
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 60.0


class WorkQueue:
    """Call handlers for keys in the order in which they fall due.

    `reaction` is how many seconds a controller needs to notice a change. A handler that meets an ApiError is called
    again with growing delays, as a real controller would be; any other error is kept in `crash` and ends the work.
    """

    def __init__(self, now: Callable[[], float], reaction: float) -> None:
        self._now = now
        self._reaction = reaction
        self._handlers: dict[str, Callable[[str], None]] = {}
        self._patience: dict[str, tuple[float, float]] = {}
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._failures: dict[Key, int] = {}
        self._timer: asyncio.Handle | None = None
        self._armed_for = float("inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        self.crash: Exception | None = None

    def register(self, name: str, handler: Callable[[str], None],
                 patience: tuple[float, float] = (FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)) -> None:
        """Let `handler` look after the keys of `name`; `patience` has its first and its longest wait after an ApiError."""
        self._handlers[name] = handler
        self._patience[name] = patience

    def add(self, name: str, key: str) -> None:
        """Have a key looked at after the usual reaction time."""
        self.add_at(name, key, self._now() + self._reaction)

    def add_at(self, name: str, key: str, instant: float) -> None:
        """Have a key looked at when `instant` (unix seconds) has come; the earliest request counts."""
        entry = (name, key)
        instant = round(instant, 6)
        known = self._due.get(entry)
        if known is not None and known <= instant:
            return
        self._due[entry] = instant
        heapq.heappush(self._heap, (instant, next(self._order), entry))
        if instant < self._armed_for:
            self._arm()

    def start(self) -> None:
        """Begin to work, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        """End the work; keys that wait are kept."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._timer, self._armed_for = None, None, float("inf")

    def _arm(self) -> None:
        if self._loop is None or not self._heap:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._heap[0][0]
        self._timer = self._loop.call_later(max(0.0, self._armed_for - self._now()), self._work)

    def _work(self) -> None:
        now = self._now()
        for _ in range(BATCH):
            if not self._heap or self._heap[0][0] > now + 1e-6:
                break
            due, _, entry = heapq.heappop(self._heap)
            if self._due.get(entry) == due:
                del self._due[entry]
                self._handle(entry)
        self._timer, self._armed_for = None, float("inf")
        self._arm()

    def _handle(self, entry: Key) -> None:
        name, key = entry
        try:
            self._handlers[name](key)
        except ApiError:
            tries = self._failures[entry] = self._failures.get(entry, 0) + 1
            first, last = self._patience[name]
            delay = min(last, first * 2.0 ** min(tries - 1, 60))
            self.add_at(name, key, self._now() + delay)
        except Exception as error:
            self.crash = error
            self.stop()
            raise
        else:
            self._failures.pop(entry, None)
