"""Managers that may take GPUs from virtual machines as they start: that of confidential computing takes GPUs from vfio-pci and
resets them where they are to have another mode, that of vGPU devices takes those away that are there and makes others. So they
come to no host whose GPUs somebody uses.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.driver import owner_uid
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView, Ref
from gpuward.model.workloads import Workload

DEPLOY_CC_MANAGER: Final = names.DEPLOY_PREFIX + "cc-manager"
DEPLOY_VGPU_DEVICE_MANAGER: Final = names.DEPLOY_PREFIX + "vgpu-device-manager"


class Manager(msgspec.Struct, frozen=True):
    """Say of a manager by which label it comes to which hosts, and by which its pods are known."""

    label: str
    daemon_set: str
    hosts: Sequence[Workload]
    """What the hosts are for."""
    pods_by: str = "app"
    """The label of its pods that has the DaemonSet's name for a value."""

    def is_there(self, snapshot: Snapshot) -> bool:
        """Tell whether its DaemonSet is."""
        return any(ds.name == self.daemon_set and ds.namespace == snapshot.namespace and not ds.deleting
                   for ds in snapshot.daemonsets)

    def comes_later(
        self, node: NodeView, pods: Iterable[PodView], users: Collection[Ref], namespace: str, *, there: bool
    ) -> bool:
        """Tell whether it waits for the users of a host's GPUs. Where its DaemonSet is `there`, and for the host, it has come
        before: its pod only comes again. One that stops stays no more than one that is gone.
        """
        if not users or not self._may_come(node) or (there and node.labels.get(self.label)):
            return False
        return all(pod.deleting for pod in self._pods(pods, namespace))

    def may_go(self, pods: Iterable[PodView], namespace: str, living: Container[str]) -> bool:
        """Tell whether a pod of it has an owner that is none of the `living` DaemonSets: it is about to go, or has none by now,
        which is seen later.
        """
        return any(pod.of_daemonset and owner_uid(pod) not in living and not pod.deleting for pod in self._pods(pods, namespace))

    def _pods(self, pods: Iterable[PodView], namespace: str) -> Iterator[PodView]:
        return (pod for pod in pods
                if pod.namespace == namespace and not pod.finished and pod.labels.get(self.pods_by) == self.daemon_set)

    def _may_come(self, node: NodeView) -> bool:
        """Tell whether it comes by its label, which is not of somebody's own making."""
        return node.labels.get(self.label) in (None, "", "true")


CC_MANAGER: Final = Manager(DEPLOY_CC_MANAGER, names.CC_MANAGER_APP, (Workload.VM_PASSTHROUGH, Workload.VM_VGPU), "name")
VGPU_DEVICE_MANAGER: Final = Manager(DEPLOY_VGPU_DEVICE_MANAGER, names.VGPU_DEVICE_MANAGER_APP, (Workload.VM_VGPU,))
