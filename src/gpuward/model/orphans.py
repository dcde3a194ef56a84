"""Driver pods that no DaemonSet owns, on nodes whose labels ask for no such driver.

A DaemonSet's controller ends the pods of nodes that it no longer selects. Nobody does so for these, and no other driver can come
to their nodes meanwhile. So the operator does, once nothing uses the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuward import names
from gpuward.model.driver import has_hosts_driver_labels, heeds_variable, is_driver_pod
from gpuward.model.removal import DriverKept
from gpuward.model.views import NodeView, PodView
from gpuward.model.workloads import is_for_virtual_machines, uses_gpus


def is_hosts_orphan(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod that no DaemonSet owns holds the driver of a host of vGPUs."""
    return pod.namespace == namespace and _is_orphan(pod) and has_hosts_driver_labels(pod.labels)


def is_vfio_orphan(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod that no DaemonSet owns has given its node's GPUs to vfio-pci."""
    return pod.namespace == namespace and _is_orphan(pod) and pod.labels.get("name") == names.VFIO_MANAGER_APP


def is_driver_orphan(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod that no DaemonSet owns holds a driver, for containers or for virtual machines."""
    holds = is_driver_pod(pod, namespace) or is_hosts_orphan(pod, namespace) or is_vfio_orphan(pod, namespace)
    return _is_orphan(pod) and holds


def unwanted(node: NodeView, pods: Iterable[PodView], namespace: str) -> list[PodView]:
    """Return the driver pods on a node that no DaemonSet owns, and whose kind of driver the node's labels do not ask for."""
    orphans = [pod for pod in pods if _is_orphan(pod)]
    if not orphans:
        return []
    none, hosts_none = is_without_driver(node), node.labels.get(names.DEPLOY_VGPU_MANAGER) != "true"
    vfio_none = node.labels.get(names.DEPLOY_VFIO_MANAGER, "false") == "false"
    return [pod for pod in orphans if (none and is_driver_pod(pod, namespace)) or (hosts_none and is_hosts_orphan(pod, namespace))
            or (vfio_none and is_vfio_orphan(pod, namespace))]


def is_without_driver(node: NodeView) -> bool:
    """Tell whether a node is to have no driver for containers, as it is for virtual machines, or for nothing."""
    nothing = node.labels.get(names.DEPLOY_OPERANDS) == "false"
    return names.DEPLOY_DRIVER not in node.labels and (nothing or is_for_virtual_machines(node))


def kept_for(node: NodeView, pods: Iterable[PodView], namespace: str, *, spared: bool) -> DriverKept | None:
    """Return for which pods a node keeps such a driver; None where it has none, or none that stays.

    `spared` is what `spares_default_runtime` says.
    """
    there = tuple(pods)
    if not unwanted(node, there, namespace):
        return None
    variable = heeds_variable(node, spared)
    users = [pod.ref for pod in there if uses_gpus(pod, namespace, variable=variable)]
    return DriverKept(min(users), len(users)) if users else None


def _is_orphan(pod: PodView) -> bool:
    return pod.orphan and not (pod.deleting or pod.finished)
