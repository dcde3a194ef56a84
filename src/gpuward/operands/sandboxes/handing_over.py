"""How the drivers of hosts of vGPUs go from NVIDIADrivers to the ClusterPolicy's vGPU manager, and back.

Both select hosts by the same label, and a machine can have one of them only: the second would unload the driver of the first, and
the first, when it ends, that of the second. So one comes once the other is gone, and none goes under a virtual machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpuward import names
from gpuward.labels import cordons
from gpuward.model.actions import Action, ApplyObject, DeleteObject
from gpuward.model.driver import is_hosts_daemonset, is_hosts_driver_pod
from gpuward.model.hosts import machines_on_hosts
from gpuward.model.leaving import leaving_of
from gpuward.model.orphans import is_hosts_orphan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.operands.driver.unwanted import once_unused
from gpuward.operands.sandboxes.vgpu_manager import NAME
from gpuward.operands.state import OperandState

_OWNER: Final = "NVIDIADriver"


def hand_over(actions: Iterable[Action], states: Sequence[OperandState], snapshot: Snapshot, now: float, *,
              left: bool) -> list[Action]:
    """Return the actions with those by which drivers of hosts come from elsewhere, where they are `left` to NVIDIADrivers, or are
    not any more.
    """
    if left:
        return [*actions, *_to_others(snapshot, now)]
    wanted = any(state.name == NAME and state.enabled for state in states)
    if not wanted:
        return [*actions, *_managers(snapshot, now)]
    made = any(state.name == NAME and any(obj["kind"] == "DaemonSet" for obj in state.objects) for state in states)
    return [*behind_hosts(actions, snapshot), *(_taken_back(snapshot, now) if made else ())]


def behind_hosts(actions: Iterable[Action], snapshot: Snapshot) -> list[Action]:
    """Return the actions without the making of the vGPU manager's DaemonSet while NVIDIADrivers have the drivers of hosts."""
    held = _is_held(snapshot)
    return [each for each in actions if not (held and isinstance(each, ApplyObject) and each.kind == "DaemonSet"
                                             and each.ref.name == names.VGPU_MANAGER_APP)]


def waits_for_hosts(states: Iterable[OperandState], snapshot: Snapshot) -> dict[str, str]:
    """Return what the vGPU manager's state waits for, where it waits for hosts of NVIDIADrivers."""
    if not (any(state.name == NAME and state.enabled for state in states) and _is_held(snapshot)):
        return {}
    why = ("hosts to lose that of NVIDIADrivers" if (used := machines_on_hosts(snapshot)) is None else
           f"the pods of virtual machines to go: all hosts keep the driver of NVIDIADrivers {used}")
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


def _taken_back(snapshot: Snapshot, now: float) -> list[Action]:
    """Delete the DaemonSets of NVIDIADrivers for hosts without their pods, and these one by one, each after a last look at its
    host, once no virtual machine uses any of them: the vGPU manager comes to all hosts at once, and till then none of these is to
    be without a driver.
    """
    there = [ds for ds in _hosts_sets(snapshot) if names.DRIVER_OWNER in ds.node_selector]
    if machines_on_hosts(snapshot):
        return []
    why = "the drivers of hosts are the ClusterPolicy's again"
    gone: list[Action] = [DeleteObject("DaemonSet", ds.ref, orphan=True, why=why) for ds in there if not ds.deleting]
    return [*gone, *_replaced(((pod, node) for pod, node in _orphans(snapshot) if is_hosts_driver_pod(pod, snapshot.namespace)),
                              snapshot, why, now)]


def _orphans(snapshot: Snapshot) -> list[tuple[PodView, NodeView]]:
    """Return the pods on hosts that have their drivers and that no DaemonSet owns, those of the vGPU manager among them. Those on
    nodes that are no hosts any more go in any case.
    """
    return [(pod, node) for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None
            and node.labels.get(names.DEPLOY_VGPU_MANAGER) == "true" for pod in pods if is_hosts_orphan(pod, snapshot.namespace)]


def _to_others(snapshot: Snapshot, now: float) -> list[Action]:
    """Delete those from hosts that nobody uses and to which an NVIDIADriver's come, unless that adopts them."""
    sets = [ds for ds in _hosts_sets(snapshot) if not (ds.deleting or ds.drivers_go)]
    why = "an NVIDIADriver brings the driver of its host"
    found = []
    for pod, node in _orphans(snapshot):
        coming = [ds for ds in sets if ds.node_selector.items() <= node.labels.items()]
        if coming and not any(ds.selector and ds.selector.items() <= pod.labels.items() for ds in coming):
            found.append((pod, node))
    return _replaced(found, snapshot, why, now)


def _managers(snapshot: Snapshot, now: float) -> list[Action]:
    """Delete the vGPU manager's from hosts that nobody uses."""
    found = ((pod, node) for pod, node in _orphans(snapshot) if pod.labels.get("app") == names.VGPU_MANAGER_APP)
    return _replaced(found, snapshot, "vgpuManager is switched off", now)


def _replaced(found: Iterable[tuple[PodView, NodeView]], snapshot: Snapshot, why: str, now: float) -> list[Action]:
    """Delete those of these pods whose hosts nobody uses, each once nothing offers its host's GPUs any more."""
    leaving = leaving_of(snapshot)
    actions = (cordons.hand_over(delete, node, snapshot.pods.get(node.name, ()), leaving, now) for pod, node in found
               if (delete := once_unused(pod, node, snapshot, why)) is not None)
    return [action for action in actions if action is not None]
