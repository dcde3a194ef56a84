"""The operator's namespace, to PlaceView."""

from __future__ import annotations

import msgspec

from gpuward import names
from gpuward.model.place import PlaceView
from gpuward.wire.meta import WireMeta, with_prefix


class _Object(msgspec.Struct):
    metadata: WireMeta


_heads = msgspec.json.Decoder(_Object)


def place_view(raw: bytes | msgspec.Raw) -> PlaceView:
    """Decode a namespace. Raises msgspec.DecodeError for bytes that are not an object."""
    meta = _heads.decode(raw).metadata
    return PlaceView(meta.name, meta.uid, meta.resource_version, with_prefix(meta.labels, (names.POD_SECURITY,)),
                     deleting=meta.deletion_timestamp is not None)
