"""Event loops whose time is a port: virtual time for tests and rehearsal, fast time for people who watch.

Both are ordinary asyncio loops: `asyncio.sleep`, `wait_for` and `timeout` obey their time, and `loop.time()` reads as
unix seconds. Only two things are replaced: the reading of the clock, and how long the selector waits.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from kubesandbox.errors import InputError, VirtualDeadlock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH: Final = 1767225600.0
"""Where virtual time starts unless told otherwise: 2026-01-01T00:00:00Z."""

STANDSTILL_TURNS: Final = 2_000_000
"""So many turns of the loop without time moving mean a task that spins."""

MOST_OWED: Final = 0.1
"""Real seconds of work that fast time may make up for at once; the rest of a long burst is simply lost to it."""

_RESOLUTION: Final = 1e-6


class _TimeSelector(selectors.BaseSelector):
    """Pass everything to a real selector, except how long to wait."""

    def __init__(self, wait: Callable[[selectors.BaseSelector, float | None], list[Any]]) -> None:
        self._real = selectors.DefaultSelector()
        self._wait = wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return self._wait(self._real, timeout)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jump to the next timer whenever nothing is ready; never wait for real.

    While a thread of `run_in_executor` works, time stands still and the loop waits for it.
    Raises VirtualDeadlock out of `run_until_complete` when nothing is ready and no timer is set.
    """

    def __init__(self, start: float = EPOCH) -> None:
        self._now = start
        self._threads = 0
        self._turns = 0
        super().__init__(_TimeSelector(self._wait))
        # asyncio runs timers that are due within this; its own 1e-9 is below what a float holds at unix seconds.
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        """Return the virtual unix seconds."""
        return self._now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T],
                        *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in a thread, with virtual time standing still until it has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the executor's threads, which is a wait for the real world."""
        self._threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._threads -= 1

    def _thread_ended(self, _future: asyncio.Future[Any]) -> None:
        self._threads -= 1

    def _wait(self, real: selectors.BaseSelector, timeout: float | None) -> list[Any]:
        ready = real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            self._turns += 1
            if self._turns > STANDSTILL_TURNS:
                self._turns = 0
                raise VirtualDeadlock(f"time does not move any more: a task spins without sleeping; {self._tasks()}")
            return ready
        if self._threads:
            return real.select(None)
        if timeout is None:
            raise VirtualDeadlock(f"nothing is ready and no timer is set, so nothing can happen; {self._tasks()}")
        # Rounding keeps whole seconds whole, so that timestamps cut to seconds do not fall one short. Time moves all the same:
        # who sleeps until a time that is less than that away must not wake before it, again and again.
        self._now = max(round(self._now + timeout, 6), round(self._now + _RESOLUTION, 6))
        self._turns = 0
        return []

    def _tasks(self) -> str:
        waiting = []
        for task in asyncio.all_tasks(self):
            stack = task.get_stack(limit=1)
            place = f"{stack[-1].f_code.co_qualname}:{stack[-1].f_lineno}" if stack else "unknown"
            waiting.append(f"{task.get_name()} at {place}")
        return "waiting: " + (", ".join(sorted(waiting)[:10]) or "no task")


FASTEST: Final = 1_000_000
"""With more than that a loop would start before 1970."""


class SpeedLoop(asyncio.SelectorEventLoop):
    """Run up to `speed` times as fast as the wall clock, from the past, and never overtake it.

    The loop starts at `start` (unix seconds; by default so far back that it takes a little over a minute of real time
    to catch up) and goes on at the wall clock's own pace once it has caught up, so that no timestamp lies in
    the future for whoever looks at it with an ordinary clock. While there is work to do time stands still: a busy machine
    makes the loop slower than asked for, but nothing in it late. Sockets work as usual.
    Raises InputError for a speed that is not positive, or greater than FASTEST.
    """

    def __init__(self, speed: float = 1.0, start: float | None = None) -> None:
        super().__init__(_TimeSelector(self._wait))
        if not 0 < speed <= FASTEST:
            self.close()
            raise InputError("speed", speed, f"give a factor greater than 0 and up to {FASTEST}, such as 10")
        self.speed = speed
        wall = time.time()
        self._offset = wall - time.monotonic()
        self._now = min(wall, wall - speed * 60 * (speed > 1) if start is None else start)
        self._counted = time.monotonic()
        """Until when real time has been turned into the loop's, or been forgotten."""
        self._clock_resolution = _RESOLUTION

    def time(self) -> float:
        """Return the loop's unix seconds."""
        return self._now

    def _wait(self, real: selectors.BaseSelector, timeout: float | None) -> list[Any]:
        if timeout is not None and timeout <= 0:
            return real.select(0)
        self._counted = max(self._counted, time.monotonic() - MOST_OWED)
        until = None if timeout is None else self._counted + self._real(timeout)
        ready = real.select(None if until is None else max(0.0, until - time.monotonic()))
        now = time.monotonic()
        if until is not None and timeout is not None and now >= until:
            self._now += timeout
            self._counted = until
        else:
            self._now += self._virtual(now - self._counted)
            self._counted = now
        return ready

    def _behind(self) -> float:
        """Return by how much the loop was behind the wall clock when real time was last counted."""
        return max(0.0, self._counted + self._offset - self._now)

    def _real(self, seconds: float) -> float:
        """Return the real seconds that so much of the loop's time takes: fast until it has caught up, then at par."""
        return max(seconds / self.speed, seconds - self._behind())

    def _virtual(self, seconds: float) -> float:
        """Return how far the loop's time gets in so many real seconds."""
        return min(seconds * self.speed, seconds + self._behind())


class LoopClock:
    """Read the running loop's time; only meaningful on the loops of this module."""

    def now(self) -> float:
        """Return the loop's unix seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait by the loop's time."""
        await asyncio.sleep(seconds)


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]], *, start: float = EPOCH) -> T:
    """Run `main()` to its end in virtual time, which begins at `start` (unix seconds).

    Raises VirtualDeadlock when nothing can ever happen again, and whatever `main` raises.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(main())


def run_at_speed(main: Callable[[], Coroutine[Any, Any, T]], speed: float, *, start: float | None = None) -> T:
    """Run `main()` to its end on a SpeedLoop."""
    with asyncio.Runner(loop_factory=lambda: SpeedLoop(speed, start)) as runner:
        return runner.run(main())
