"""Who cordoned a node, as far as its managedFields tell: the operator follows nodes without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuward import names
from gpuward.errors import ApiError, Unreachable
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.record import CordonOwner
from gpuward.model.views import NodeView

UNTOLD = "its managedFields do not say who it was"


async def cordoned_by(client: Client, node: NodeView, owner: CordonOwner | None) -> str:
    """Return who cordoned a node that the upgrade did not, and when; empty where it did, or the node is not cordoned."""
    if not node.unschedulable or owner is CordonOwner.GPUWARD:
        return ""
    try:
        return writer_of((await client.get(resources.NODES, node.name)).object())
    except (ApiError, Unreachable):
        return UNTOLD


def writer_of(node: Mapping[str, Any]) -> str:
    """Return the field manager, other than ours, that wrote last that a node is unschedulable."""
    entries = [entry for entry in node["metadata"].get("managedFields") or () if _wrote(entry)]
    last = max(entries, key=lambda entry: str(entry.get("time") or ""), default=None)
    if last is None:
        return UNTOLD
    at = f" at {last['time']}" if last.get("time") else ""
    return f"field manager {last['manager']} wrote it{at}"


def _wrote(entry: Mapping[str, Any]) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    return entry.get("manager") not in (None, "", names.FIELD_MANAGER) and "f:unschedulable" in (fields.get("f:spec") or {})
