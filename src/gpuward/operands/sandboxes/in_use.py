"""What brings a driver to nodes for virtual machines, and must not go while these run there: their GPUs would be unbound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

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
    """Return the actions without deletions that wait until no virtual machine has a GPU by the driver that goes."""
    @cache
    def used(label: str) -> bool:
        return used_by_machines(snapshot, label)

    return [action for action in actions if not (isinstance(action, DeleteObject) and not action.orphan
                                                 and (label := _LABELS.get(action.ref.name)) is not None and used(label))]
