"""Keep two kinds of writes apart that are each right on their own: another driver for a DaemonSet, and what lets its pods come.

A driver DaemonSet is given another driver only while no pods run on a node that would get it at once; a node is given a
DaemonSet's pods only because of the driver that this has. Both are decided on what was seen, and either may take its time. So the
one waits for the others to be answered, and each is looked at once more before it is sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple


class _Waiting(NamedTuple):
    changes: bool
    admitted: asyncio.Future[None]


class DriverGate:
    """Let many writes pass that let driver pods come, or one that changes a driver DaemonSet, in the order in which they come: a
    webhook may hold up each for half a minute, and again and again. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._queue: deque[_Waiting] = deque()
        self._openings = 0
        self._changing = False

    @asynccontextmanager
    async def opening(self) -> AsyncGenerator[None, None]:
        """Hold off changes of driver DaemonSets meanwhile."""
        await self._enter(changes=False)
        try:
            yield
        finally:
            self._openings -= 1
            self._admit()

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[None, None]:
        """Wait until nothing is on its way that lets driver pods come, and hold it off meanwhile."""
        await self._enter(changes=True)
        try:
            yield
        finally:
            self._changing = False
            self._admit()

    async def _enter(self, *, changes: bool) -> None:
        waiting = _Waiting(changes, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._admit()
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.done() and not waiting.admitted.cancelled():
                self._openings -= not changes
                self._changing = self._changing and not changes
            self._admit()
            raise

    def _admit(self) -> None:
        """Let those in that are next."""
        while self._queue and not self._changing:
            changes, admitted = self._queue[0]
            if changes and self._openings and not admitted.done():
                return
            self._queue.popleft()
            if admitted.done():  # whoever waited was cancelled
                continue
            self._changing, self._openings = changes, self._openings + (not changes)
            admitted.set_result(None)
