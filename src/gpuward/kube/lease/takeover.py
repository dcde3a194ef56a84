"""Begin to act after somebody else has, where no ledger is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gpuward.kube.cluster import Cluster

POLL: Final = 0.25
"""Seconds between two looks whether this process may act; a look costs no request."""


class Takeover:
    """List the cluster anew before acting: a watch that lags does not show the last writes of the one who acted before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = self._listed = 0
        self._turned = asyncio.Event()

    @property
    def known(self) -> bool:
        """Tell whether the cluster is known as it was left."""
        return self._turns == self._listed

    def forget(self) -> None:
        """List the cluster anew: who may act has changed."""
        if self._cluster.is_followed:
            self._turns += 1
            self._turned.set()

    async def run(self, acting: Callable[[], bool]) -> None:
        """List whenever that is needed and this process may act. Ends only by cancellation."""
        while True:
            await self._turned.wait()
            if not acting():
                await asyncio.sleep(POLL)
                continue
            self._turned.clear()
            turns = self._turns
            await self._cluster.list_anew()
            self._listed = turns
            self._cluster.touch()
