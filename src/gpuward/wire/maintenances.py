"""NodeMaintenances to MaintenanceView."""

from __future__ import annotations

import msgspec

from gpuward.model.maintenance import READY, MaintenanceView
from gpuward.wire.meta import WireMeta


class _Spec(msgspec.Struct):
    requestor: str = msgspec.field(default="", name="requestorID")
    node: str = msgspec.field(default="", name="nodeName")


class _Condition(msgspec.Struct):
    type: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Maintenance(msgspec.Struct):
    metadata: WireMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Maintenance)


def maintenance_view(raw: bytes | msgspec.Raw) -> MaintenanceView:
    """Decode a NodeMaintenance. Raises msgspec.DecodeError for bytes that are not one."""
    found = _decoder.decode(raw)
    meta, status = found.metadata, found.status or _Status()
    ready = next((one for one in status.conditions or () if one.type == READY), None)
    return MaintenanceView(
        meta.namespace, meta.name, meta.uid, meta.resource_version, found.spec.node, found.spec.requestor,
        ready.reason if ready else "", ready.message if ready else "", meta.deletion_timestamp is not None)
