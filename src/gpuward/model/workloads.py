"""What a node's GPUs are for, containers or virtual machines, and when that may change.

Each kind of workload has a driver of its own on the machine: NVIDIA's for containers, vfio-pci, or the vGPU manager. The labels
of a node decide which comes, and the controllers of DaemonSets follow them at once. So while pods use a node's GPUs its labels
stay those of the workload that it has, whatever people have asked for since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar

import msgspec

from gpuward import names
from gpuward.model.driver import comes_with_driver, heeds_variable, spares_default_runtime, uses_driver
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView, Ref


class Workload(StrEnum):
    """Say what a node's GPUs are for, as the label `nvidia.com/gpu.workload.config` spells it."""

    CONTAINER = "container"
    VM_PASSTHROUGH = "vm-passthrough"
    VM_VGPU = "vm-vgpu"


def keys(*operands: str) -> frozenset[str]:
    """Return the labels by which a node runs these operands."""
    return frozenset(names.DEPLOY_PREFIX + operand for operand in operands)


FOR_CONTAINERS = keys(
    "driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter",
    "node-status-exporter", "operator-validator", "client",
)
FOR_PASSTHROUGH = keys("sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
FOR_VGPU = keys("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client")
_TELLING = {
    Workload.CONTAINER: (FOR_CONTAINERS, FOR_CONTAINERS - keys("client")),
    Workload.VM_PASSTHROUGH: (FOR_PASSTHROUGH, keys("vfio-manager", "kata-manager")),
    Workload.VM_VGPU: (FOR_VGPU, keys("vgpu-manager", "vgpu-device-manager")),
}
"""The labels that each kind of workload has, and those of them that no other kind has."""
HOST_DRIVERS = frozenset({names.DEPLOY_DRIVER, names.DEPLOY_VFIO_MANAGER, names.DEPLOY_VGPU_MANAGER})
"""The labels by which a driver comes to a node, and goes."""


class Workloads(msgspec.Struct, frozen=True):
    """Hold what a ClusterPolicy says about workloads."""

    enabled: bool = False
    """Whether nodes can be for virtual machines at all."""
    default: Workload = Workload.CONTAINER
    """What nodes are for that do not say so themselves."""

    def wanted(self, label: str | None) -> Workload:
        """Return what a node with this label should be for."""
        if not self.enabled:
            return Workload.CONTAINER
        try:
            return Workload(label or "")
        except ValueError:
            return self.default

    def unknown(self, node: NodeView) -> str:
        """Say that a node's label asks for a workload that nobody knows; nothing where it does not."""
        label = node.labels.get(names.WORKLOAD_CONFIG, "")
        if not (self.enabled and label and node.gpu_present) or label in set(Workload):
            return ""
        return (f"the label {names.WORKLOAD_CONFIG}={label} is none of {', '.join(Workload)}: the node is for "
                f"{self.default}, the default")


class WorkloadKept(msgspec.Struct, frozen=True):
    """Wait until the pods have gone for which a node stays for what it is for."""

    reason: ClassVar = Reason.WORKLOAD_KEPT
    workload: Workload
    wanted: Workload
    pod: Ref
    """One of them."""
    pods: int


class OperandsKept(msgspec.Struct, frozen=True):
    """Wait until the pods have gone for which a node keeps its operands, though somebody wants none there."""

    reason: ClassVar = Reason.OPERANDS_KEPT
    pod: Ref
    """One of them."""
    pods: int


def is_vm_gpu(resource: str) -> bool:
    """Tell whether a resource is a device of NVIDIA's as the device plugins for virtual machines name them, by model or type."""
    others = (*names.GPU_RESOURCE_PREFIXES, names.NETWORK_RESOURCE_PREFIX)
    return resource.startswith(names.DEVICE_PREFIX) and not resource.startswith(others)


def workload_of(labels: Mapping[str, str]) -> Workload | None:
    """Return what a node's labels say that it is for now, None where they do not.

    It is what most of the labels are of: people set single labels of operands by hand, and kubelets set theirs again.
    """
    there = {key for key, value in labels.items() if value and key.startswith(names.DEPLOY_PREFIX)}
    shares = {workload: len(every & there) / len(every) for workload, (every, telling) in _TELLING.items() if telling & there}
    return max(shares, key=shares.__getitem__, default=None)


def is_for_virtual_machines(node: NodeView) -> bool:
    """Tell whether a node's labels say that its GPUs serve virtual machines."""
    return workload_of(node.labels) in (Workload.VM_PASSTHROUGH, Workload.VM_VGPU)


def uses_gpus(pod: PodView, namespace: str, *, variable: bool) -> bool:
    """Tell whether a pod uses its node's GPUs, for whatever they are. One that asks for 0 of them does not; a claim counts even
    where no container is known to be given its devices. A pod of an earlier Node of the name may have been given them before.
    """
    if pod.finished or comes_with_driver(pod, namespace):
        return False
    given = pod.uses_vm_gpu or (pod.uses_gpu and (not pod.idle_claim or bool(pod.claims)))
    return given or (not pod.uses_gpu and uses_driver(pod, namespace, variable=variable))


class WorkloadKeeper:
    """Judge which nodes stay for what they are for, though they should be for something else."""

    def __init__(self, snapshot: Snapshot, workloads: Workloads) -> None:
        self._workloads = workloads
        self._namespace = snapshot.namespace
        self._spared = spares_default_runtime(snapshot)

    def kept(self, node: NodeView, pods: Iterable[PodView]) -> WorkloadKept | None:
        """Return why a node is not for what it should be for; None where it is, or may become so now."""
        if not (self._workloads.enabled or names.DEPLOY_VFIO_MANAGER in node.labels or names.DEPLOY_VGPU_MANAGER in node.labels):
            return None  # as in most clusters: nothing is for virtual machines, or ever was
        now, wanted = workload_of(node.labels), self._workloads.wanted(node.labels.get(names.WORKLOAD_CONFIG))
        if now is None or now is wanted or node.labels.get(names.DEPLOY_OPERANDS) == "false":
            return None
        users = self.users(node, pods)
        return WorkloadKept(now, wanted, min(users), len(users)) if users else None

    def operands(self, node: NodeView, pods: Iterable[PodView]) -> OperandsKept | None:
        """Return why a node keeps its operands, though its label says that it should have none."""
        if node.labels.get(names.DEPLOY_OPERANDS) != "false" or HOST_DRIVERS.isdisjoint(node.labels):
            return None
        users = self.users(node, pods)
        return OperandsKept(min(users), len(users)) if users else None

    def users(self, node: NodeView, pods: Iterable[PodView]) -> list[Ref]:
        """Return the pods that use a node's GPUs, for whatever they are."""
        variable = heeds_variable(node, self._spared)
        return [pod.ref for pod in pods if uses_gpus(pod, self._namespace, variable=variable)]


def used_by_machines(snapshot: Snapshot, label: str) -> bool:
    """Tell whether pods use the GPUs of a node that gets its driver by this label."""
    keeper = WorkloadKeeper(snapshot, Workloads())
    return any(node.labels.get(label) == "true" and is_for_virtual_machines(node)
               and keeper.users(node, snapshot.pods.get(node.name, ())) for node in snapshot.nodes.values())
