"""The metadata that every object has, as far as views keep it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final

import msgspec

from gpuward.model.views import Owner

MOST_SHARED: Final = 2048
"""Maps, and owners, that are known at once: the operands' and those of the workloads that are listed together are far fewer."""


class WireOwner(msgspec.Struct):
    """Decode one owner reference."""

    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = msgspec.field(default=None, name="blockOwnerDeletion")


class WireMeta(msgspec.Struct, rename="camel"):
    """Decode an object's metadata. The maps are None where the object has none: a JSON patch must know."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[WireOwner] | None = None
    finalizers: list[str] | None = None

    @property
    def created(self) -> float:
        """Return the creation time in seconds since the epoch, 0 when absent."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0

    @property
    def controller(self) -> Owner | None:
        """Return the owner that controls the object."""
        for owner in self.owner_references or ():
            if owner.controller:
                return _owner(owner.kind, owner.name, owner.uid)
        return None


def shared(values: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a map of which there is one for all that are equal: a DaemonSet has as many pods as there are nodes."""
    return _shared(tuple(values.items())) if values else _EMPTY


def with_shared_values(values: dict[str, str] | None) -> dict[str, str]:
    """Return a map with one text for all that are equal: nodes differ in few of their many labels."""
    return {key: intern(value) for key, value in (values or {}).items()}


_EMPTY: Final[Mapping[str, str]] = {}


@lru_cache(MOST_SHARED)
def _shared(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(items)


@lru_cache(MOST_SHARED)
def _owner(kind: str, name: str, uid: str) -> Owner:
    return Owner(kind, name, uid)


def with_prefix(values: Mapping[str, str] | None, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the entries whose key begins with one of the prefixes."""
    return {key: value for key, value in (values or {}).items() if key.startswith(prefixes)}
