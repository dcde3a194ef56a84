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
from gpuward.kube.lease.rules import Observation
from gpuward.kube.resources import LEASES

LOOK_AGAIN: Final = 60.0
"""Seconds between two looks of the one who acts, and so how long it acts beside an operator that does not look."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Say who holds a Lease, and since when as it is written there."""

    identity: str
    namespace: str
    since: str

    @classmethod
    def of(cls, lease: dict[str, Any]) -> Holder:
        """Return who holds a Lease."""
        spec = lease.get("spec") or {}
        namespace = str((lease.get("metadata") or {}).get("namespace") or "")
        return cls(str(spec.get("holderIdentity") or ""), namespace, str(spec.get("acquireTime") or ""))


async def leases_named(client: Client, name: str) -> list[dict[str, Any]]:
    """Return the Leases with a name of all namespaces. The right to list those with one name suffices."""
    found = client.list(Selection(LEASES, fields=f"metadata.name={name}"))
    return [msgspec.json.decode(bytes(item), type=dict[str, Any]) async for item in found]


class Others:
    """Look for operators in other namespaces. Who may not look sees nobody."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._seen: dict[str, Observation] = {}
        self._looked = float("-inf")

    def is_due(self, now: float) -> bool:
        """Tell whether the last look was long ago; `now` is a reading of the event loop's clock."""
        return now >= self._looked + LOOK_AGAIN

    async def look(self) -> Holder | None:
        """Return one who renews such a Lease, or may: one that was seen for the first time counts until its time is up.

        Raises errors.ApiError and errors.Unreachable; a refusal for want of rights is no error.
        """
        try:
            leases = await leases_named(self._client, self._name)
        except errors.Forbidden:
            leases = []
        now = self._looked = asyncio.get_running_loop().time()
        elsewhere = {holder.namespace: (holder, lease) for lease in leases
                     if (holder := Holder.of(lease)).namespace != self._namespace and holder.identity}
        self._seen = {space: self._seen.get(space, Observation()).next(lease, now) for space, (_, lease) in elsewhere.items()}
        return next((holder for space, (holder, _) in sorted(elsewhere.items()) if now <= self._seen[space].ends), None)
