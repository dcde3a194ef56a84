"""Custom resources that configure the operator, to PolicyView."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gpuward.model.views import PolicyView
from gpuward.wire.meta import WireMeta


class _Object(msgspec.Struct):
    metadata: WireMeta


_heads = msgspec.json.Decoder(_Object)
_bodies = msgspec.json.Decoder(dict[str, Any])


def policy_view(raw: bytes | msgspec.Raw) -> PolicyView:
    """Decode a custom resource, whole. Raises msgspec.DecodeError for bytes that are not an object."""
    meta = _heads.decode(raw).metadata
    return PolicyView(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        generation=meta.generation,
        created=meta.created,
        deleting=meta.deletion_timestamp is not None,
        body=_bodies.decode(raw),
    )


def oldest_first(policies: Iterable[PolicyView]) -> tuple[PolicyView, ...]:
    """Return them as they count: the first one is in force."""
    return tuple(sorted(policies, key=lambda policy: (policy.created, policy.name)))
