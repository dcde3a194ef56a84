"""Driver pods that no DaemonSet owns, on nodes whose labels ask for no such driver: they go once nothing uses the GPUs."""

from __future__ import annotations

from gpuward.model.actions import Action, DeletePod, LastLook
from gpuward.model.driver import heeds_variable, spares_default_runtime
from gpuward.model.orphans import unwanted
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from gpuward.model.workloads import uses_gpus


def ending(snapshot: Snapshot) -> list[Action]:
    """Delete driver pods that no DaemonSet owns from nodes that are not for their kind of driver any more."""
    why = "no DaemonSet owns it, and its node is not for such a driver"
    return [action for name, pods in snapshot.pods.items() if (node := snapshot.nodes.get(name)) is not None
            for pod in unwanted(node, pods, snapshot.namespace)
            if (action := once_unused(pod, node, snapshot, why)) is not None]


def once_unused(pod: PodView, node: NodeView, snapshot: Snapshot, why: str) -> DeletePod | None:
    """Delete a driver pod, if nothing uses the GPUs of its node, now and by a last look."""
    if node.name in snapshot.unsettled:
        return None
    variable = heeds_variable(node, spares_default_runtime(snapshot))
    if any(uses_gpus(one, snapshot.namespace, variable=variable) for one in snapshot.pods.get(node.name, ())):
        return None
    return DeletePod(pod.ref, node.name, LastLook(variable=variable, machines=True), why=why)
