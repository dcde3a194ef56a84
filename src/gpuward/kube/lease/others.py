"""Notice operators that live in other namespaces, by the Leases that they renew there.

An election is held in one namespace. An operator in another one, NVIDIA's or gpuward's, holds a Lease of its own with the same
name, and both would write to the same nodes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gpuward import errors
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.lease.rules import LONGEST, Observation, believed
from gpuward.kube.resources import LEASES

LOOK_AGAIN: Final = 60.0
"""Seconds between two looks of the one who acts."""
LOOK_CLOSER: Final = 5.0
"""The same while somebody is there of whom it is not known whether they renew: every operator does within 2 s or so."""
UNRENEWED: Final = 60.0
"""Seconds at most for which a Lease counts that nobody was seen to renew, whatever it says: a tenant who may
write Leases in a namespace of their own could stop the operator for ever with one."""
RENEWED: Final = LONGEST
"""The same after a renewal: longer than any holder leaves between two."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Say who holds a Lease, and since when as it is written there."""

    identity: str
    namespace: str
    since: str
    lasts: float
    """For how many seconds the Lease counts after its last renewal."""

    @classmethod
    def of(cls, lease: dict[str, Any]) -> Holder:
        """Return who holds a Lease."""
        spec = lease.get("spec") or {}
        namespace = str((lease.get("metadata") or {}).get("namespace") or "")
        return cls(str(spec.get("holderIdentity") or ""), namespace, str(spec.get("acquireTime") or ""), believed(spec))


async def leases_named(client: Client, name: str) -> list[dict[str, Any]]:
    """Return the Leases with a name of all namespaces. The right to list those with one name suffices."""
    found = client.list(Selection(LEASES, fields=f"metadata.name={name}"))
    return [msgspec.json.decode(bytes(item), type=dict[str, Any]) async for item in found]


@dataclass(frozen=True, slots=True)
class _Watched:
    """Hold what was seen of one Lease, and whether it was written again while we looked."""

    holder: Holder
    seen: Observation
    renewed: bool

    @classmethod
    def next(cls, before: _Watched | None, holder: Holder, lease: dict[str, Any], now: float) -> _Watched:
        """Return what is known after reading the Lease at `now`."""
        if before is None:
            return cls(holder, Observation().next(lease, now), renewed=False)
        seen = before.seen.next(lease, now)
        return cls(holder, seen, before.renewed or seen.state != before.seen.state)

    def counts(self, now: float) -> bool:
        """Tell whether its holder may still act."""
        return now <= self.seen.since + min(self.seen.duration, RENEWED if self.renewed else UNRENEWED)


class Others:
    """Look for operators in other namespaces. Who may not look sees nobody."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._watched: dict[str, _Watched] = {}
        self.forbidden = False
        """Whether the last look was refused for want of rights."""
        self._looked = float("-inf")

    def is_due(self, now: float) -> bool:
        """Tell whether the one who acts is to look again; `now` is a reading of the event loop's clock."""
        doubtful = any(one.counts(now) and not one.renewed for one in self._watched.values())
        return now >= self._looked + (LOOK_CLOSER if doubtful else LOOK_AGAIN)

    async def look(self, *, acting: bool = False) -> Holder | None:
        """Return one who renews such a Lease, or may: one that was seen for the first time counts until its time is up.

        Who is `acting` is told only of those that it has seen renew: a Lease alone is no operator.

        Raises errors.ApiError and errors.Unreachable; a refusal for want of rights is no error.
        """
        try:
            leases, self.forbidden = await leases_named(self._client, self._name), False
        except errors.Forbidden:
            leases, self.forbidden = [], True
        now = self._looked = asyncio.get_running_loop().time()
        elsewhere = {holder.namespace: (holder, lease) for lease in leases
                     if (holder := Holder.of(lease)).namespace != self._namespace and holder.identity}
        self._watched = {space: _Watched.next(self._watched.get(space), *found, now) for space, found in elsewhere.items()}
        return next((one.holder for _, one in sorted(self._watched.items(), key=lambda item: item[0])
                     if one.counts(now) and (one.renewed or not acting)), None)
