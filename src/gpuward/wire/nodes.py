"""Nodes to NodeView."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.marks import SLURM_REASON
from gpuward.model.mig import DONE as MIG_DONE
from gpuward.model.mig import PAUSED as MIG_PAUSED
from gpuward.model.record import CordonOwner, Record, decode_record
from gpuward.model.taints import Taint
from gpuward.model.told import TYPES, ToldCondition
from gpuward.model.views import NodeView
from gpuward.wire.meta import WireMeta, shared, with_prefix, with_shared_values

KEPT = ("nvidia.com/", "gpuward.io/", SLURM_REASON)
"""Prefixes of the annotations that are kept. Labels are all kept: an NVIDIADriver may choose its nodes by any of them."""


_KUBECTL = "kubectl"
"""How the field managers of people begin who cordon nodes by hand."""
_BY_CONDITION = "node.kubernetes.io/"
"""How the keys of taints begin that Kubernetes sets itself."""


class _Spec(msgspec.Struct):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    last_transition_time: datetime | None = None
    message: msgspec.Raw = msgspec.Raw(b'""')


class _NodeInfo(msgspec.Struct, rename="camel"):
    container_runtime_version: str = ""
    kernel_version: str = ""


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)


class _Node(msgspec.Struct):
    metadata: WireMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _FieldsEntry(msgspec.Struct):
    manager: str = ""
    time: datetime | None = None
    fields: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _FieldsMeta(msgspec.Struct, rename="camel"):
    managed_fields: list[_FieldsEntry] | None = None


class _WithFields(msgspec.Struct):
    metadata: _FieldsMeta


_decoder = msgspec.json.Decoder(_Node)
_fields_decoder = msgspec.json.Decoder(_WithFields)


def node_view(raw: bytes | msgspec.Raw) -> NodeView:
    """Decode a node. Raises msgspec.DecodeError for bytes that are not one."""
    node = _decoder.decode(raw)
    meta = node.metadata
    record, error = _record(meta)
    if node.spec.unschedulable and record is not None and record.cordon is CordonOwner.GPUWARD:
        record = _without_theirs(record, raw)
    return NodeView(
        name=intern(meta.name),
        uid=meta.uid,
        version=meta.resource_version,
        labels=with_shared_values(meta.labels),
        annotations=with_prefix(meta.annotations, KEPT),
        has_annotations=meta.annotations is not None,
        unschedulable=node.spec.unschedulable,
        cordoners=_cordoners(raw) if node.spec.unschedulable and _may_be_managers(meta, record) else (),
        ready=_ready(node.status),
        turned=_turned(node.status),
        created=meta.created,
        deleting=meta.deletion_timestamp is not None,
        taints=tuple(taint for taint in node.spec.taints or () if not taint.key.startswith(_BY_CONDITION)),
        runtime=node.status.node_info.container_runtime_version.partition("://")[0],
        kernel=node.status.node_info.kernel_version,
        disk_pressure=any(one.type == "DiskPressure" and one.status == "True" for one in node.status.conditions or ()),
        conditions=shared({one.type: one.status for one in node.status.conditions or () if one.type != "Ready"}),
        told=_told(node.status),
        record=record,
        record_error=error,
        mig_since=_mig_since(raw, meta.labels or {}),
    )


def _told(status: _Status) -> tuple[ToldCondition, ...]:
    found = [one for one in status.conditions or () if one.type in TYPES]
    return tuple(
        ToldCondition(one.type, one.status, one.last_transition_time.timestamp() if one.last_transition_time else 0.0,
                      str(msgspec.json.decode(one.message) or ""))
        for one in sorted(found, key=lambda one: one.type))


def _may_be_managers(meta: WireMeta, record: Record | None) -> bool:
    noted = names.DRIVER_MANAGER_CORDON in (meta.annotations or {})
    return noted or record is None or record.cordon is None


def _without_theirs(record: Record, raw: bytes | msgspec.Raw) -> Record:
    """Return a record without a cordon of ours that somebody lifted, and made one of their own, while nobody looked."""
    cordoners = _cordoners(raw)
    theirs = bool(cordoners) and all(each.startswith(_KUBECTL) for each in cordoners)
    return msgspec.structs.replace(record, cordon=None, changing=0.0) if theirs else record


def _cordoners(raw: bytes | msgspec.Raw) -> tuple[str, ...]:
    """Return who owns the cordon. managedFields are long, and read for the few nodes alone of which it matters."""
    entries = _fields_decoder.decode(raw).metadata.managed_fields or ()
    return tuple(sorted({one.manager for one in entries if "f:unschedulable" in ((one.fields or {}).get("f:spec") or {})}))


def _mig_since(raw: bytes | msgspec.Raw, labels: Mapping[str, str]) -> float:
    """Return when the MIG manager last wrote how far it is; where it is done, when it took the device plugin off a node that has
    not got it back since.
    """
    done = labels.get(names.MIG_STATE) in (None, MIG_DONE)
    if done and MIG_PAUSED not in labels.get(names.DEPLOY_PLUGIN, ""):
        return 0.0
    entries = _fields_decoder.decode(raw).metadata.managed_fields or ()
    key = f"f:{names.DEPLOY_PLUGIN if done else names.MIG_STATE}"
    return max((one.time.timestamp() for one in entries if one.time is not None
                and key in (((one.fields or {}).get("f:metadata") or {}).get("f:labels") or {})), default=0.0)


def _ready(status: _Status) -> bool | None:
    for condition in status.conditions or ():
        if condition.type == "Ready":
            return {"True": True, "False": False}.get(condition.status)
    return None


def _turned(status: _Status) -> float:
    ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
    return ready.last_transition_time.timestamp() if ready is not None and ready.last_transition_time else 0.0


def _record(meta: WireMeta) -> tuple[Record | None, str]:
    text = (meta.annotations or {}).get(names.UPGRADE_RECORD)
    if text is None:
        return None, ""
    try:
        return decode_record(text), ""
    except ValueError as error:
        return None, str(error)
