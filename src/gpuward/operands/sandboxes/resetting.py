"""What may take GPUs from virtual machines as it starts comes to each host once nothing uses its GPUs, see
`model/resetting.py`: until then the host lacks its label. Another template of it comes host by host (`host_by_host.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpuward.model.actions import Action, ApplyObject
from gpuward.model.resetting import CC_MANAGER, VGPU_DEVICE_MANAGER, Manager
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, Ref
from gpuward.model.workloads import WorkloadKeeper, Workloads, workload_of
from gpuward.operands.sandboxes import cc_manager, vgpu_devices
from gpuward.operands.state import OperandState

_STATES: Final[Mapping[str, tuple[Manager, str]]] = {
    cc_manager.NAME: (CC_MANAGER, "may reset the GPUs"),
    vgpu_devices.NAME: (VGPU_DEVICE_MANAGER, "may divide the GPUs anew"),
}
"""The managers by their states, and what they do as they start."""
_NOBODYS: Final = Workloads()


def behind_machines(actions: Iterable[Action], snapshot: Snapshot) -> list[Action]:
    """Return the actions without the making of their DaemonSets while a host has the label to which they are not to come yet, or
    may be about to lose the pod that is there.
    """
    every = list(actions)
    for manager, _ in _STATES.values():
        if any(_makes(each, manager) for each in every) and (_loses_one(manager, snapshot) or any(
                manager.label in node.labels for node, _ in _waiting(manager, snapshot))):
            every = [each for each in every if not _makes(each, manager)]
    return every


def waits_for_machines(states: Iterable[OperandState], snapshot: Snapshot) -> dict[str, str]:
    """Return what their states wait for, where that is the end of virtual machines."""
    enabled = {state.name for state in states if state.enabled}
    found = {}
    for name, (manager, does) in _STATES.items():
        if name in enabled and (waiting := list(_waiting(manager, snapshot))):
            node, user = waiting[0]
            more = f", and {len(waiting) - 1} more hosts are used" if waiting[1:] else ""
            found[name] = (f"{manager.daemon_set} waits for the pods of virtual machines to go, as it {does}: pod {user} runs on "
                           f"node {node.name}{more}")
    return found


def _makes(action: Action, manager: Manager) -> bool:
    return isinstance(action, ApplyObject) and action.kind == "DaemonSet" and action.ref.name == manager.daemon_set


def _loses_one(manager: Manager, snapshot: Snapshot) -> bool:
    """Tell whether a host that is used may be about to lose its pod with the DaemonSet that this had: another one that is made by
    then brings it back at once.
    """
    keeper, living = WorkloadKeeper(snapshot, _NOBODYS), {ds.uid for ds in snapshot.daemonsets}
    return any(manager.may_go(pods, snapshot.namespace, living) and bool(keeper.users(node, pods))
               for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None)


def _waiting(manager: Manager, snapshot: Snapshot) -> Iterator[tuple[NodeView, Ref]]:
    """Yield the hosts to which one comes later, each with a pod that uses its GPUs."""
    keeper, there = WorkloadKeeper(snapshot, _NOBODYS), manager.is_there(snapshot)
    for name, node in sorted(snapshot.nodes.items()):
        if workload_of(node.labels) in manager.hosts:
            pods = snapshot.pods.get(name, ())
            users = keeper.users(node, pods)
            if manager.comes_later(node, pods, users, snapshot.namespace, there=there):
                yield node, min(users)
