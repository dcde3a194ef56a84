"""The drivers of hosts of vGPUs: the DaemonSets of NVIDIADrivers of type vgpu-host-manager, and what these leave behind.

No upgrade replaces such a driver: it goes with the labels of its node, or with its DaemonSet, once no virtual machine uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuward import names
from gpuward.model.driver import is_hosts_daemonset, is_hosts_driver_pod, revisions_of
from gpuward.model.owners import Claim
from gpuward.model.snapshot import Snapshot
from gpuward.model.taints import Taint, tolerated
from gpuward.model.views import DaemonSetView, NodeView, PodView, Ref
from gpuward.model.workloads import WorkloadKeeper, Workloads

_NOBODYS: Final = Workloads()


class LeftHosts:
    """Know the DaemonSets for hosts whose NVIDIADriver is gone."""

    def __init__(self, snapshot: Snapshot, claims: tuple[Claim, ...] | None) -> None:
        there = {claim.name for claim in claims or ()}
        gone = [ds for ds in snapshot.daemonsets if claims is not None and not ds.deleting
                and is_hosts_daemonset(ds, snapshot.namespace) and ds.node_selector.get(names.DRIVER_OWNER, "") not in there]
        self.going = frozenset(ds.uid for ds in gone if ds.drivers_go)
        """Those whose drivers are to go: they are there for no node any more."""
        self._left = [ds.node_selector for ds in gone if not ds.drivers_go]

    def keep(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node keeps the driver that was left behind there, or of which nobody has seen yet what becomes of it."""
        return any(selector.items() <= labels.items() for selector in self._left)


class InUse(NamedTuple):
    """Say which pods use the GPUs of hosts whose driver is an NVIDIADriver's."""

    pod: Ref
    """One of them."""
    node: str
    """Where that is."""
    pods: int

    def __str__(self) -> str:
        """Say until when all these hosts keep it."""
        return f"until pod {self.pod} on node {self.node} has gone ({self.pods} in all)"


def machines_on_hosts(snapshot: Snapshot) -> InUse | None:
    """Return which pods use the GPUs of hosts whose driver is an NVIDIADriver's, whoever owns its pods; None where none does."""
    keeper = WorkloadKeeper(snapshot, _NOBODYS)
    users = [(user, name) for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None
             and any(is_hosts_driver_pod(pod, snapshot.namespace) and not pod.finished for pod in pods)
             for user in keeper.users(node, pods)]
    return InUse(*min(users), len(users)) if users else None


def former_pods(ds: DaemonSetView, snapshot: Snapshot) -> list[tuple[PodView, NodeView]]:
    """Return the pods that a DaemonSet's controller would replace, and where they are, by the names of their nodes."""
    newest = revisions_of(ds.uid, snapshot.revisions).newest
    return [(pod, node) for name, pods in sorted(snapshot.pods.items()) if (node := snapshot.nodes.get(name)) is not None
            for pod in pods if pod.is_owned_by(ds.uid) and (newest is None or pod.revision != newest.hash)]


def outdated_on_hosts(snapshot: Snapshot) -> dict[str, PodView]:
    """Return the pods, by their nodes, that bring another driver than their NVIDIADrivers ask for by now: their DaemonSets are
    OnDelete, as with NVIDIA's operator, and nobody but a person replaces them.
    """
    found: dict[str, PodView] = {}
    for ds in snapshot.daemonsets:
        if is_hosts_daemonset(ds, snapshot.namespace) and ds.settled and not (ds.deleting or ds.drivers_go):
            same = revisions_of(ds.uid, snapshot.revisions).same
            found |= {node.name: pod for pod, node in former_pods(ds, snapshot) if same and pod.revision not in same}
    return found


def all_have_newest(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    """Tell whether a DaemonSet's controller would replace no pod. It says so itself for those on nodes that the DaemonSet is for:
    its revisions are watched apart, and what is taken for the newest may be an earlier one. Others have to carry the template's
    number.
    """
    if not ds.settled or ds.updated < ds.desired or former_pods(ds, snapshot):
        return False
    return not ds.misscheduled or all(pod.template_generation == ds.template_generation for pods in snapshot.pods.values()
                                      for pod in pods if pod.is_owned_by(ds.uid))


def kept_away_by(ds: DaemonSetView, node: NodeView) -> Taint | None:
    """Return a taint of a node that a DaemonSet's pods do not tolerate: one that is deleted there would not come again."""
    if ds.tolerations is None:
        return None
    return next((taint for taint in node.taints if not tolerated((taint,), ds.tolerations)), None)


def told_of_use(ds: DaemonSetView, snapshot: Snapshot) -> str:
    """Say which of the pods that a DaemonSet's controller would replace are in use, and by whom, or else what taint keeps one."""
    keeper = WorkloadKeeper(snapshot, _NOBODYS)
    used = [(node.name, users) for _, node in former_pods(ds, snapshot)
            if (users := keeper.users(node, snapshot.pods.get(node.name, ())))]
    if not used:
        kept = ((node.name, taint) for _, node in former_pods(ds, snapshot) if (taint := kept_away_by(ds, node)) is not None)
        return next((f"; that on {node} stays while taint {taint} keeps the next one away" for node, taint in kept), "")
    node, users = used[0]
    return f"; that on {node} is used by pod {min(users)}" + (f", and {len(used) - 1} more are used" if used[1:] else "")


def nodes_of(ds: DaemonSetView, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the nodes that have a pod of a DaemonSet."""
    return tuple(name for name, pods in sorted(snapshot.pods.items()) if name and any(pod.is_owned_by(ds.uid) for pod in pods))


def is_used_by_machines(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    """Tell whether pods use the GPUs of a node that has its driver by this DaemonSet."""
    keeper = WorkloadKeeper(snapshot, _NOBODYS)
    return any(any(pod.is_owned_by(ds.uid) for pod in pods) and keeper.users(node, pods)
               for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None)
