"""The metadata that every object has, as far as views keep it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from gpuward.model.views import Owner


class WireOwner(msgspec.Struct):
    """Decode one owner reference."""

    kind: str
    name: str
    uid: str
    controller: bool | None = None


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

    @property
    def created(self) -> float:
        """Return the creation time in seconds since the epoch, 0 when absent."""
        return self.creation_timestamp.timestamp() if self.creation_timestamp else 0.0

    @property
    def controller(self) -> Owner | None:
        """Return the owner that controls the object."""
        for owner in self.owner_references or ():
            if owner.controller:
                return Owner(owner.kind, owner.name, owner.uid)
        return None


def with_prefix(values: Mapping[str, str] | None, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the entries whose key begins with one of the prefixes."""
    return {key: value for key, value in (values or {}).items() if key.startswith(prefixes)}
