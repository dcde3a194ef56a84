"""Drivers that are loaded on nodes where no pod serves them any more: their daemons are gone, and their libraries with them.

The kernel modules stay while operands have the GPUs open, and the node goes on offering these to pods.
"""

from __future__ import annotations

from typing import Final

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.removal import NO_DRIVER
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from gpuward.model.withheld import is_unwanted
from gpuward.model.workloads import is_for_virtual_machines

_OPENS_GPUS: Final = frozenset({names.DEVICE_PLUGIN_APP, "nvidia-dcgm", "nvidia-dcgm-exporter"})
WHAT_TO_DO: Final = ("cordon and reboot such a node, with a driver installed on the host if its GPUs are to be used, or set "
                     f"{names.DEPLOY_OPERANDS}=false on it")


def abandoned(snapshot: Snapshot) -> list[str]:
    """Return the nodes, by name, with a driver that is loaded and that nobody serves."""
    return sorted(name for name, node in snapshot.nodes.items() if is_abandoned(node, snapshot))


def is_abandoned(node: NodeView, snapshot: Snapshot) -> bool:
    """Tell whether a node has a driver left that we brought: an operand that cannot do without one is ready there, and has been
    since before the driver's pod went, where that is known. One that became ready later has another driver, such as the host's.
    """
    record, pods = node.record, snapshot.pods.get(node.name, ())
    if record is None or not record.loaded or not node.gpu_present or is_for_virtual_machines(node):
        return False
    if any(is_driver_pod(pod, snapshot.namespace) for pod in pods):
        return False
    since = record.since if record.target == NO_DRIVER or is_unwanted(node) else None
    return any(_opens_gpus(pod, snapshot.namespace) and (since is None or pod.turned <= since) for pod in pods)


def _opens_gpus(pod: PodView, namespace: str) -> bool:
    return pod.namespace == namespace and pod.ready and not pod.deleting and pod.labels.get("app") in _OPENS_GPUS


def told_of_abandoned(snapshot: Snapshot) -> str:
    """Say on how many nodes such a driver is left, and what to do; nothing where there is none."""
    if not (left := len(abandoned(snapshot))):
        return ""
    nodes = "1 node offers" if left == 1 else f"{left} nodes offer"
    return f"; {nodes} GPUs by a driver that is still loaded and that nobody serves: {WHAT_TO_DO}"
