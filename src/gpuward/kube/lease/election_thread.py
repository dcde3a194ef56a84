"""Run an elector on a thread of its own.

An operator that is busy for some seconds must not lose the Lease for it. So the elector gets its own event loop and
its own connection, and shares nothing with the rest but a flag and two numbers, each written by the thread alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from gpuward import errors
from gpuward.kube.http.client import Client
from gpuward.kube.http.servertime import ServerClock
from gpuward.kube.lease.election import NOBODY, Candidate, ElectionListeners, Elector

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gpuward.kube.http.transport import Transport


class _Machine:
    """Tell the time of this machine, until the API server has told its own."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.now = wall

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class ElectionThread:
    """Stand for election on a thread; tell the event loop that started it of every change.

    `connect` is called on the thread and makes a transport that belongs to it. `random` must not be shared either.
    """

    def __init__(
        self,
        connect: Callable[[], Transport],
        candidate: Candidate,
        *,
        random: Random,
        changed: Callable[[bool], None],
        told: ElectionListeners = NOBODY,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._connect = connect
        self._candidate = candidate
        self._random = random
        self._changed = changed
        self._told = told
        self._wall = wall
        self._elector: Elector | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._away: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._stopping = threading.Event()
        self._ended: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._main, name="leader-election", daemon=True)

    def start(self) -> None:
        """Start the thread; `changed` and `told` will be called on the event loop that runs now."""
        self._home = asyncio.get_running_loop()
        self._ended = self._home.create_future()
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Tell whether the thread runs; without it nobody stands for election any more."""
        return self._thread.is_alive()

    def valid(self) -> bool:
        """Tell whether we lead and have renewed within the deadline; may be asked from any thread."""
        return self._elector is not None and self._elector.valid(time.monotonic())

    @property
    def unusable(self) -> bool:
        """Tell whether the server does not let the Lease be used: then it cannot tell who else runs."""
        return self._elector is not None and self._elector.unusable

    @property
    def holder(self) -> str:
        """Return who holds the Lease, as last seen."""
        return self._elector.holder if self._elector else ""

    @property
    def failure(self) -> errors.GpuwardError | None:
        """Return why the last attempt failed, or None."""
        return self._elector.failure if self._elector else None

    async def ended(self) -> None:
        """Wait until the thread ends; raise what ended it if it was not `stop`, errors.EndedByItself where nothing was raised."""
        if self._ended is not None:
            await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Release the Lease if it is ours, and end the thread."""
        self._stopping.set()
        if self._away is not None:
            with contextlib.suppress(RuntimeError):  # its loop has just ended by itself
                self._away.call_soon_threadsafe(self._cancel)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        if self._ended is not None:
            await asyncio.wait([self._ended])

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _main(self) -> None:
        problem: Exception | None = None
        try:
            asyncio.run(self._elect())
            if not self._stopping.is_set():
                problem = errors.EndedByItself("the leader election ended by itself")
        except Exception as error:  # whatever ends the thread must reach the operator, which cannot see it otherwise
            problem = error
        except BaseException as error:  # one that would end the program ends only the thread that it is raised on
            problem = errors.EndedByItself(f"the leader election was broken off: {type(error).__name__} {error}".rstrip())
        finally:
            self._tell(self._finish, problem)

    async def _elect(self) -> None:
        self._away = asyncio.get_running_loop()
        transport = self._connect()
        client, clock = Client(transport), ServerClock(_Machine(self._wall))

        def heard(date: float, asked: float) -> None:
            clock.heard(date, asked)  # those who read the Lease judge its times by this clock
            self._tell(lambda told: self._told.heard(*told), (date, asked))

        client.heard = heard
        try:
            self._elector = Elector(
                client,
                self._candidate,
                random=self._random,
                wall=clock.now,
                changed=lambda leading: self._tell(self._changed, leading),
                told=ElectionListeners(
                    lambda since: self._tell(self._told.silent, since),
                    lambda holder: self._tell(self._told.blocked, holder),
                    lambda error: self._tell(self._told.refused, error),
                    lambda is_blind: self._tell(self._told.blind, is_blind),
                ),
            )
            self._work = asyncio.ensure_future(self._elector.run())
            if self._stopping.is_set():
                self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work
        finally:
            await transport.close()

    def _finish(self, problem: Exception | None) -> None:
        if self._ended is None or self._ended.done():
            return
        if problem is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(problem)
            self._ended.exception()  # mark it as seen: `ended` may have no caller

    def _tell(self, callback: Callable[[T], None], value: T) -> None:
        if self._home is not None:
            with contextlib.suppress(RuntimeError):  # the home loop is closed: nobody is left to tell
                self._home.call_soon_threadsafe(callback, value)
