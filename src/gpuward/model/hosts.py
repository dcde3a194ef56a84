"""The drivers of hosts of vGPUs: the DaemonSets of NVIDIADrivers of type vgpu-host-manager, and what these leave behind.

No upgrade replaces such a driver: it goes with the labels of its node, or with its DaemonSet, once no virtual machine uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpuward import names
from gpuward.model.driver import is_hosts_daemonset
from gpuward.model.owners import Claim
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView
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


def is_used_by_machines(ds: DaemonSetView, snapshot: Snapshot) -> bool:
    """Tell whether pods use the GPUs of a node that has its driver by this DaemonSet."""
    keeper = WorkloadKeeper(snapshot, _NOBODYS)
    return any(any(pod.is_owned_by(ds.uid) for pod in pods) and keeper.users(node, pods)
               for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None)
