"""Keep two kinds of writes apart that are each right on their own: another driver for a DaemonSet, and what lets its pods come.

A driver DaemonSet is given another driver only while no pods run on a node that would get it at once; a node is given a
DaemonSet's pods only because of the driver that this has. Both are decided on what was seen, and either may take its time. So the
one waits for the others to be answered, and each is looked at once more before it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class DriverGate:
    """Let many writes pass that let driver pods come, or one that changes a driver DaemonSet. Belongs to one event loop."""

    def __init__(self) -> None:
        self._turned = asyncio.Condition()
        self._openings = 0
        self._changes = 0
        """Changes of DaemonSets that are under way or wait: openings let them go first, or they might wait for ever."""
        self._one = asyncio.Lock()

    @asynccontextmanager
    async def opening(self) -> AsyncGenerator[None, None]:
        """Hold off changes of driver DaemonSets meanwhile."""
        async with self._turned:
            await self._turned.wait_for(lambda: not self._changes)
            self._openings += 1
        try:
            yield
        finally:
            self._openings -= 1
            await self._tell()

    @asynccontextmanager
    async def change(self) -> AsyncGenerator[None, None]:
        """Wait until nothing is on its way that lets driver pods come, and hold it off meanwhile."""
        self._changes += 1
        try:
            async with self._one:
                async with self._turned:
                    await self._turned.wait_for(lambda: not self._openings)
                yield
        finally:
            self._changes -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self._turned:
            self._turned.notify_all()
