"""One loop's view of the cluster that all of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpuward.model.snapshot import Snapshot


class Watcher:
    """Show the cluster to one loop, and wake it when something changed since it looked last."""

    def __init__(self, look: Callable[[], Snapshot], wake: asyncio.Event) -> None:
        self._look = look
        self._wake = wake

    def observe(self) -> Snapshot:
        """Return the facts of this moment."""
        self._wake.clear()
        return self._look()

    def wake(self) -> None:
        """Wake this loop alone: something changed that the cluster does not show."""
        self._wake.set()

    async def changed(self, timeout: float | None) -> bool:
        """Wait until something has changed since the last look; return False when the time is up first."""
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True
