"""How the drivers of hosts of vGPUs go from NVIDIADrivers to the ClusterPolicy's vGPU manager, and back.

Both select hosts by the same label, and a machine can have one of them only: the second would unload the driver of the first, and
the first, when it ends, that of the second. So one comes once the other is gone, and none goes under a virtual machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpuward import names
from gpuward.model.actions import Action, ApplyObject, DeleteObject, DeletePod, LastLook
from gpuward.model.driver import is_hosts_daemonset, is_hosts_driver_pod
from gpuward.model.hosts import is_used_by_machines
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, PodView
from gpuward.model.workloads import WorkloadKeeper, Workloads
from gpuward.operands.sandboxes.vgpu_manager import NAME
from gpuward.operands.state import OperandState

_OWNER: Final = "NVIDIADriver"


def hand_over(actions: Iterable[Action], states: Sequence[OperandState], snapshot: Snapshot, *, left: bool) -> list[Action]:
    """Return the actions with those by which drivers of hosts come from elsewhere, where they are `left` to NVIDIADrivers, or are
    not any more.
    """
    if left:
        return [*actions, *_leaving(_left_pods(snapshot), snapshot, to_others=True)]
    wanted = any(state.name == NAME and state.enabled for state in states)
    if not wanted:
        return [*actions, *_leaving(_left_pods(snapshot), snapshot, to_others=False)]
    made = any(state.name == NAME and any(obj["kind"] == "DaemonSet" for obj in state.objects) for state in states)
    return [*behind_hosts(actions, snapshot), *(_taken_back(snapshot) if made else ())]


def behind_hosts(actions: Iterable[Action], snapshot: Snapshot) -> list[Action]:
    """Return the actions without the making of the vGPU manager's DaemonSet while NVIDIADrivers have the drivers of hosts."""
    held = _is_held(snapshot)
    return [each for each in actions if not (held and isinstance(each, ApplyObject) and each.kind == "DaemonSet"
                                             and each.ref.name == names.VGPU_MANAGER_APP)]


def waits_for_hosts(states: Iterable[OperandState], snapshot: Snapshot) -> dict[str, str]:
    """Return what the vGPU manager's state waits for, where it waits for hosts of NVIDIADrivers."""
    if not (any(state.name == NAME and state.enabled for state in states) and _is_held(snapshot)):
        return {}
    used = sorted(ds.name for ds in _hosts_sets(snapshot) if is_used_by_machines(ds, snapshot))
    why = ("hosts to lose that of NVIDIADrivers" if not used else
           f"the pods of virtual machines to go: until then all hosts keep the driver of NVIDIADrivers (DaemonSet {used[0]})")
    return {NAME: f"{names.VGPU_MANAGER_APP} waits for {why}"}


def _is_held(snapshot: Snapshot) -> bool:
    there = any(ds.name == names.VGPU_MANAGER_APP and ds.namespace == snapshot.namespace and not ds.deleting
                for ds in snapshot.daemonsets)
    hosts = any(is_hosts_driver_pod(pod, snapshot.namespace) and not pod.finished
                for pods in snapshot.pods.values() for pod in pods)
    return not there and (hosts or any(ds.desired for ds in _hosts_sets(snapshot)))


def _hosts_sets(snapshot: Snapshot) -> list[DaemonSetView]:
    return [ds for ds in snapshot.daemonsets if is_hosts_daemonset(ds, snapshot.namespace) and (
        ds.owner is None or ds.owner.kind == _OWNER)]


def _taken_back(snapshot: Snapshot) -> list[Action]:
    """Delete the DaemonSets of NVIDIADrivers for hosts, with their pods, once no virtual machine uses any of them: the vGPU
    manager comes to all hosts at once, and till then none of these is to be without a driver.
    """
    there = [ds for ds in _hosts_sets(snapshot) if names.DRIVER_OWNER in ds.node_selector]
    if any(is_used_by_machines(ds, snapshot) for ds in there):
        return []
    return [DeleteObject("DaemonSet", ds.ref, why="the drivers of hosts are the ClusterPolicy's again")
            for ds in there if not ds.deleting]


def _left_pods(snapshot: Snapshot) -> list[PodView]:
    """Return the vGPU manager's pods that their DaemonSet left behind."""
    return [pod for pods in snapshot.pods.values() for pod in pods if pod.namespace == snapshot.namespace and pod.orphan
            and pod.labels.get("app") == names.VGPU_MANAGER_APP and not pod.deleting]


def _leaving(left: Iterable[PodView], snapshot: Snapshot, *, to_others: bool) -> list[Action]:
    """Delete pods that no DaemonSet owns from hosts that nobody uses; `to_others` only where that of an NVIDIADriver comes."""
    keeper = WorkloadKeeper(snapshot, Workloads())
    sets = [ds for ds in _hosts_sets(snapshot) if not ds.deleting]
    why = "an NVIDIADriver brings the driver of its host" if to_others else "vgpuManager is switched off"
    found: list[Action] = []
    for pod in left:
        node = snapshot.nodes.get(pod.node)
        if node is None or pod.node in snapshot.unsettled or keeper.users(node, snapshot.pods.get(pod.node, ())):
            continue
        if not to_others or any(ds.node_selector.items() <= node.labels.items() for ds in sets):
            found.append(DeletePod(pod.ref, pod.node, LastLook(machines=True), why=why))
    return found
