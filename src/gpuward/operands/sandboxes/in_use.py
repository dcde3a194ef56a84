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
from gpuward.operands.sandboxes.going import with_pods

_LABELS: Final[Mapping[str, str]] = {
    vfio_manager.APP: names.DEPLOY_VFIO_MANAGER,
    vgpu_manager.ACCOUNT: names.DEPLOY_VGPU_MANAGER,
    vgpu_manager.DAEMON_SET: names.DEPLOY_VGPU_MANAGER,
}
"""By the names of DaemonSets, and of the accounts of their pods, the label of the nodes that they are for."""


def spare_drivers_in_use(actions: Iterable[Action], snapshot: Snapshot, now: float) -> list[Action]:
    """Return the actions without deletions that wait until no virtual machine has a GPU by the driver that goes; those of the
    DaemonSets come once nothing offers the GPUs of their hosts, and look once more. The rights of their pods go with them.
    """
    @cache
    def used(label: str) -> bool:
        return used_by_machines(snapshot, label)

    every = tuple(actions)
    steps = {action.ref: with_pods(msgspec.structs.replace(action, unused=_labelled(label, snapshot)), snapshot, now)
             for action in every if isinstance(action, DeleteObject) and action.kind == "DaemonSet"
             and (label := _label(action)) is not None and not used(label)}
    waiting = {_LABELS[ref.name] for ref, them in steps.items() if not any(isinstance(one, DeleteObject) for one in them)}
    spared: list[Action] = []
    for action in every:
        label = _label(action)
        if not isinstance(action, DeleteObject) or label is None:
            spared.append(action)
        elif action.kind == "DaemonSet":
            spared += steps.get(action.ref, [])
        elif not (used(label) or label in waiting):
            spared.append(action)
    return spared


def _label(action: Action) -> str | None:
    return _LABELS.get(action.ref.name) if isinstance(action, DeleteObject) and not action.orphan else None


def _labelled(label: str, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(sorted(node.name for node in snapshot.nodes.values() if node.labels.get(label) == "true"))
