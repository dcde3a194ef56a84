"""What brings a driver to nodes for virtual machines, and must not go while these run there: their GPUs would be unbound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import Action, DeleteObject
from gpuward.model.snapshot import Snapshot
from gpuward.model.workloads import used_by_machines
from gpuward.operands.sandboxes import vfio_manager, vgpu_manager

_LABELS: Final[Mapping[str, str]] = {
    vfio_manager.APP: names.DEPLOY_VFIO_MANAGER,
    vgpu_manager.ACCOUNT: names.DEPLOY_VGPU_MANAGER,
    vgpu_manager.DAEMON_SET: names.DEPLOY_VGPU_MANAGER,
}
"""By the names of DaemonSets, and of the accounts of their pods, the label of the nodes that they are for."""


def spare_drivers_in_use(actions: Iterable[Action], snapshot: Snapshot) -> list[Action]:
    """Return the actions without deletions that wait until no virtual machine has a GPU by the driver that goes; those of the
    DaemonSets look once more.
    """
    @cache
    def used(label: str) -> bool:
        return used_by_machines(snapshot, label)

    spared: list[Action] = []
    for action in actions:
        label = _LABELS.get(action.ref.name) if isinstance(action, DeleteObject) and not action.orphan else None
        if label is None or not isinstance(action, DeleteObject):
            spared.append(action)
        elif not used(label):
            unused = _labelled(label, snapshot) if action.kind == "DaemonSet" else ()
            spared.append(msgspec.structs.replace(action, unused=unused))
    return spared


def _labelled(label: str, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(sorted(node.name for node in snapshot.nodes.values() if node.labels.get(label) == "true"))
