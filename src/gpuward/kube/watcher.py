"""One loop's view of the cluster that all of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView


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


class Subscribers:
    """Hold the events that wake the loops."""

    def __init__(self) -> None:
        self._all: list[asyncio.Event] = []
        self._counting: list[asyncio.Event] = []
        self._of_fleet: list[asyncio.Event] = []

    def subscribe(self, *, counts: bool = True, fleet: bool = True) -> asyncio.Event:
        """Return an event for one more loop; without `counts` no change sets it that is one of a DaemonSet's counts alone, and
        without `fleet` none of nodes and of what runs there, of which most changes are.
        """
        wake = asyncio.Event()
        self._all.append(wake)
        if counts:
            self._counting.append(wake)
        if fleet:
            self._of_fleet.append(wake)
        return wake

    def notify(self, *, counts_only: bool = False, fleet_only: bool = False) -> None:
        """Wake all loops that a change concerns."""
        for wake in self._counting if counts_only else self._of_fleet if fleet_only else self._all:
            wake.set()


def only_counts(old: DaemonSetView | None, new: DaemonSetView | None) -> bool:
    """Tell whether a DaemonSet's status counts other numbers of pods than before, and nothing else is new."""
    if old is None or new is None:
        return False
    same = msgspec.structs.replace(old, version=new.version, desired=new.desired, updated=new.updated, available=new.available,
                                   unavailable=new.unavailable, misscheduled=new.misscheduled)
    return bool(same == new)
