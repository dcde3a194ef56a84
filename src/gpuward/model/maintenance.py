"""NodeMaintenance (`maintenance.nvidia.com/v1alpha1`): a node's upgrade asks a maintenance operator for leave, and gives it back.

gpuward empties its nodes itself. It cordons a node, asks for its maintenance, and evicts nothing before that is Ready: so a node
is maintained for one thing at a time, and as many are as the maintenance operator lets be. As the node is cordoned by then, that
operator neither cordons it nor lifts the cordon.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from gpuward import names
from gpuward.model.reasons import Reason
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.views import NodeView, Ref

KIND: Final = "NodeMaintenance"
API_VERSION: Final = f"{names.MAINTENANCE_GROUP}/v1alpha1"
REQUESTOR: Final = "gpuward.io"
READY: Final = "Ready"
NOT_COLLECTED: Final = "maintenance.nvidia.com/garbage-collector.ignore"
"""Annotation without which the maintenance operator deletes what has been ready for half an hour."""
LONGEST_NAME: Final = 253
LONGEST_MESSAGE: Final = 300
"""Characters of a condition's message that are told."""
_HOLDING: Final = frozenset({
    State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED, State.POD_RESTART_REQUIRED,
    State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED})
"""The states for which a node's maintenance is asked for, from the cordon on."""


class MaintenanceMode(StrEnum):
    """Say whether a maintenance operator is asked."""

    OFF = "Off"
    REQUEST = "Request"


class Asked(StrEnum):
    """Say on a node, in an annotation, how far its maintenance is; READY lets pods be evicted."""

    ASKED = "asked"
    READY = "ready"


class MaintenanceView(msgspec.Struct, frozen=True, gc=False):
    """See of a NodeMaintenance whose it is and how far."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    node: str = ""
    requestor: str = ""
    phase: str = ""
    """The reason of its condition Ready; empty until the maintenance operator has seen it."""
    message: str = ""
    deleting: bool = False

    @property
    def ref(self) -> Ref:
        return Ref(self.namespace, self.name, self.uid)

    @property
    def ours(self) -> bool:
        return self.requestor == REQUESTOR

    @property
    def ready(self) -> bool:
        return self.phase == READY and self.ours and not self.deleting


class MaintenanceAwaited(msgspec.Struct, frozen=True):
    """Wait until a maintenance operator lets the node be maintained."""

    reason: ClassVar = Reason.MAINTENANCE_AWAITED
    name: str
    told: str = ""
    """How far that is."""


def maintenance_name(node: str) -> str:
    """Return the name of the object of a node."""
    name = f"gpuward-{node}"
    return name if len(name) <= LONGEST_NAME else f"gpuward-{hashlib.blake2s(node.encode()).hexdigest()}"


def maintenance_body(node: str, namespace: str) -> dict[str, Any]:
    """Return the object by which the maintenance of a node is asked for: no more than leave, as gpuward empties it itself."""
    meta = {"name": maintenance_name(node), "namespace": namespace, "annotations": {NOT_COLLECTED: "true"}}
    spec = {"requestorID": REQUESTOR, "nodeName": node, "cordon": False}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def asks(node: NodeView) -> bool:
    """Tell whether the maintenance of a node is asked for, as its own state goes: a pause gives back what is undisturbed."""
    record = node.record
    if record is None or record.restart or node.deleting:
        return False
    if not (node.unschedulable or names.NODE_MAINTENANCE in node.annotations):
        return False  # the maintenance operator would cordon it, and lift that
    return node.state in _HOLDING and not (record.paused and node.state in UNDISTURBED)


def may_be_emptied(annotations: Mapping[str, str]) -> bool:
    """Tell whether a node says that it may be maintained."""
    return annotations.get(names.NODE_MAINTENANCE) == Asked.READY


def how_far(found: MaintenanceView | None, refusal: str = "") -> str:
    """Say how far the maintenance of a node is, or why its object could not be made."""
    if found is None:
        return f"it could not be made: {refusal}" if refusal else "it is not there yet"
    if not found.ours:
        return f"it is the one of {found.requestor or 'somebody else'}"
    if found.deleting:
        return "the last one is still being deleted"
    if not found.phase:
        return "no maintenance operator has taken it up"
    return f"it is {found.phase}" + (f" ({found.message[:LONGEST_MESSAGE]})" if found.message else "")
