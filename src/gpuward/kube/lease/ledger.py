"""Keep the ledger of admissions on the election's Lease, where only the one who leads can change it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuward import errors, names
from gpuward.kube.cluster import Cluster
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate
from gpuward.kube.resources import LEASES
from gpuward.upgrade.ledger import read_grants, write_grants

RETRY = 1.0
"""Seconds between attempts to read the Lease."""
LATE = 10.0
"""Seconds after which the nodes of an entry pass all gates anew: others may be out of service since it was asked for. Who cannot
write the Lease within that time does not lead for long.
"""
_PATH = "/metadata/annotations/" + names.ADMISSIONS.replace("/", "~1")


class LeaseLedger:
    """Read the ledger whenever leading begins, and change it by comparing and swapping while it lasts."""

    def __init__(self, client: Client, cluster: Cluster, candidate: Candidate) -> None:
        self._client = client
        self._cluster = cluster
        self._candidate = candidate
        self._annotations: Mapping[str, str] | None = None
        """The Lease's annotations as they were when the ledger was known; None where the Lease had none."""
        self._known = asyncio.Event()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._turned = asyncio.Event()
        """Set when leading began or ended: then the next attempt need not wait."""
        self._stale = False
        """Whether what the cluster is known for was learned before this process led."""

    @property
    def known(self) -> bool:
        """Tell whether what the ledger holds is known."""
        return self._known.is_set()

    def forget(self) -> None:
        """Read the ledger anew, and list the cluster anew: who leads has changed."""
        self._stale = self._cluster.is_followed
        self._read_again()
        self._turned.set()

    def _read_again(self) -> None:
        self._known.clear()
        self._wanted.set()

    async def run(self, leading: Callable[[], bool]) -> None:
        """Read the ledger when it is not known and this process leads. Ends only by cancellation."""
        while True:
            await self._wanted.wait()
            self._turned.clear()
            if leading():
                with contextlib.suppress(errors.ApiError, errors.Unreachable):  # the elector has the same trouble, and says so
                    await self._read()
            if not self.known:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY):
                        await self._turned.wait()

    async def _read(self) -> None:
        """Learn the ledger first and then the cluster: an earlier leader's writes that a list does not show are in it."""
        self._wanted.clear()
        try:
            lease = (await self._client.get(LEASES, self._candidate.lease, self._candidate.namespace)).object()
            if (lease.get("spec") or {}).get("holderIdentity") != self._candidate.identity:
                self._wanted.set()
                return
            if self._stale:
                await self._cluster.list_anew()
        except BaseException:
            self._wanted.set()
            raise
        if not self._wanted.is_set():
            self._stale = False
            self._take(lease, anew=True)

    def _take(self, lease: Mapping[str, Any], *, anew: bool) -> None:
        self._annotations = (lease.get("metadata") or {}).get("annotations")
        self._known.set()
        self._cluster.granted(read_grants((self._annotations or {}).get(names.ADMISSIONS, "{}")), anew=anew)

    async def change(self, add: Mapping[str, str], drop: Collection[str]) -> None:
        """Enter nodes and take others out.

        Raises:
            errors.Conflict: somebody else leads, or the ledger is not what was read; it is read anew.
        """
        grants = {name: stamp for name, stamp in (self._cluster.grants or {}).items() if name not in drop} | dict(add)
        asked = asyncio.get_running_loop().time()
        try:
            answer = await self._client.patch_json(
                LEASES, self._candidate.lease, self._operations(write_grants(grants)), self._candidate.namespace
            )
        except errors.GpuwardError:
            self._read_again()
            raise
        self._take(answer.object(), anew=asyncio.get_running_loop().time() - asked > LATE)

    def _operations(self, text: str) -> list[dict[str, Any]]:
        held = [{"op": "test", "path": "/spec/holderIdentity", "value": self._candidate.identity}]
        if self._annotations is None:
            return [*held, {"op": "test", "path": "/metadata/annotations", "value": None},
                    {"op": "add", "path": "/metadata/annotations", "value": {names.ADMISSIONS: text}}]
        before = self._annotations.get(names.ADMISSIONS)
        return [*held, {"op": "test", "path": _PATH, "value": before}, {"op": "add", "path": _PATH, "value": text}]
