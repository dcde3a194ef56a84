"""What tells other controllers that a node is out of service for an upgrade: labels and annotations of theirs.

NVSentinel takes a node whose DCGM is gone for a broken one, and cordons it; it leaves nodes alone that are labelled so (its
runbook for driver upgrades). Slurm's operator makes a drain of a cordon, and takes the drain's reason from an annotation (its
documentation of cordons). What somebody else has put there is neither replaced nor taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpuward import names
from gpuward.model.maintenance import MaintenanceMode

NVSENTINEL_LABELS: Final = ("nvsentinel.dgxc.nvidia.com/managed", "k8saas.nvidia.com/ManagedByNVSentinel")
"""The label of today, and the one before; either keeps NVSentinel from cordoning a node."""
SLURM_REASON: Final = "nodeset.slinky.slurm.net/node-cordon-reason"
OPTED_OUT: Final = "false"
REASON: Final = "gpuward: driver upgrade"
"""How each reason begins that is ours."""


class Interop(msgspec.Struct, frozen=True):
    """Say which other controllers are told; none by default."""

    nvsentinel: bool = False
    slurm: bool = False
    node_conditions: bool = False
    maintenance: MaintenanceMode = MaintenanceMode.OFF
    """Whether a maintenance operator is asked before a node is emptied."""


class Marks(NamedTuple):
    """Hold labels and annotations: those on a node that are ours, or what changes, with None for what is taken away."""

    labels: Mapping[str, str | None] = {}
    annotations: Mapping[str, str | None] = {}

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


NO_MARKS: Final = Marks()


def ours(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Marks:
    """Return the marks on a node that are ours."""
    noted = names.NVSENTINEL_OPTED_OUT in annotations
    reason = annotations.get(SLURM_REASON, "")
    if not (noted or reason):
        return NO_MARKS
    found = {key: labels[key] for key in NVSENTINEL_LABELS if noted and labels.get(key) == OPTED_OUT}
    notes = {names.NVSENTINEL_OPTED_OUT: annotations[names.NVSENTINEL_OPTED_OUT]} if noted else {}
    return Marks(found, notes | ({SLURM_REASON: reason} if reason.startswith(REASON) else {}))


def removal(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Marks:
    """Return what takes our marks off a node."""
    found = ours(labels, annotations)
    return Marks(dict.fromkeys(found.labels), dict.fromkeys(found.annotations)) if found else NO_MARKS


def marking(labels: Mapping[str, str], annotations: Mapping[str, str], wanted: Interop, to: str) -> Marks:
    """Return what changes on a node that is out of service for an upgrade `to` a version; what is told already stays."""
    there = ours(labels, annotations)
    gone = Marks(
        {key: None for key in there.labels if not wanted.nvsentinel},
        {key: None for key in there.annotations if not (wanted.slurm if key == SLURM_REASON else wanted.nvsentinel)})
    put: dict[str, str | None] = {}
    notes: dict[str, str | None] = {}
    told = names.NVSENTINEL_OPTED_OUT in annotations or any(key in labels for key in NVSENTINEL_LABELS)
    if wanted.nvsentinel and not told:
        put, notes = dict.fromkeys(NVSENTINEL_LABELS, OPTED_OUT), {names.NVSENTINEL_OPTED_OUT: "true"}
    if wanted.slurm and SLURM_REASON not in annotations:
        notes[SLURM_REASON] = f"{REASON} to {to}" if to else REASON
    return Marks({**gone.labels, **put}, {**gone.annotations, **notes})
