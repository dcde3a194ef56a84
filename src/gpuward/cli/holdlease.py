"""Hold the operator's Lease for as long as a command works, so that no operator acts meanwhile."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from gpuward import names
from gpuward.errors import GpuwardError, NotFound
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate, ElectionListeners, Elector
from gpuward.kube.lease.others import Holder
from gpuward.ports import Clock

ENDS_WITHIN: Final = 15.0
"""Seconds for which the Lease of an operator that has just ended may hold."""
POLL: Final = 0.1


class HeldLease:
    """Tell whether the Lease is held. Nobody is kept from beginning to act where there is no namespace for it: nobody can."""

    def __init__(self, elector: Elector | None, identity: str) -> None:
        self._elector = elector
        self.identity = identity if elector is not None else ""
        """Who holds it; nobody where there is no namespace."""

    @property
    def valid(self) -> bool:
        """Tell whether nobody else can have begun to act."""
        return self._elector is None or self._elector.valid(asyncio.get_running_loop().time())


@asynccontextmanager
async def holding_lease(client: Client, namespace: str, command: str, clock: Clock, timeout: float) -> AsyncIterator[HeldLease]:
    """Hold the operator's Lease, and give it back.

    Raises:
        GpuwardError: somebody else holds it, or it cannot be used.
    """
    candidate = Candidate(f"gpuward-{command}-{socket.gethostname()}_{uuid.uuid4()}", namespace, looks_around=True)
    blockers: list[Holder | None] = [None]
    refusals: list[GpuwardError] = []
    elector = Elector(client, candidate, random=Random(), wall=clock.now, changed=lambda leading: None,
                      told=ElectionListeners(blocked=blockers.append, refused=refusals.append))
    work = asyncio.create_task(elector.run())
    place = f"Lease {namespace}/{names.LEADER_LEASE}"
    try:
        loop = asyncio.get_running_loop()
        end = loop.time() + max(timeout, ENDS_WITHIN)
        while not (elector.leading or refusals) and loop.time() < end:
            await asyncio.sleep(POLL)
        if refusals and not isinstance(refusals[0], NotFound):
            raise GpuwardError(f"the {place} cannot be held, so an operator could begin meanwhile: {refusals[0]}")
        if not elector.leading and not refusals:
            raise GpuwardError(_not_had(place, blockers[-1], elector.failure))
        yield HeldLease(elector if elector.leading else None, candidate.identity)
    finally:
        work.cancel()
        await asyncio.wait([work])


def _not_had(place: str, blocker: Holder | None, failure: GpuwardError | None) -> str:
    if blocker is None:
        return f"the {place} cannot be held: {failure}"
    where = f"Lease {blocker.namespace}/{names.LEADER_LEASE}"
    return f"{blocker.identity} holds the {where}, which counts for {blocker.lasts:g}s after its last renewal"
