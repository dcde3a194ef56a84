"""Drivers that are withheld from a node: pods run there on one that has no driver pod any more, and another one would come.

Its driver manager would unload the one that is loaded, or crash until these pods are gone. So such a node lacks the label by
which driver DaemonSets select it, until the upgrade has emptied it, or nothing uses its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.views import DaemonSetView, NodeView, PodView


def is_withheld(node: NodeView) -> bool:
    """Tell whether a node lacks the label by which it gets a driver, though it had one; whoever wants none sets it to `false`."""
    known = node.record is not None and bool(node.record.loaded)
    return known and node.gpu_present and not node.labels.get(names.DEPLOY_DRIVER) and node.labels.get(
        names.DEPLOY_OPERANDS) != "false"


def with_driver(node: NodeView) -> NodeView:
    """Return a node as it is once it may get a driver."""
    return msgspec.structs.replace(node, labels={**node.labels, names.DEPLOY_DRIVER: "true"})


def loaded_under(node: NodeView, pods: Iterable[PodView], namespace: str) -> str:
    """Return the configuration digest of the driver on which pods with GPUs run though it has no driver pod; empty if there is
    none, or nobody knows which it is.
    """
    if node.record is None or not node.record.loaded:
        return ""
    used = False
    for pod in pods:
        if is_driver_pod(pod, namespace):
            if not (pod.deleting or pod.finished):
                return ""
        elif pod.uses_gpu and pod.phase == "Running" and not pod.idle_claim and not pod.was_left_by(node):
            used = True
    return node.record.loaded if used else ""


def replaces(daemonsets: Iterable[DaemonSetView], labels: Mapping[str, str], loaded: str) -> bool | None:
    """Tell whether the driver DaemonSets that select these labels have another driver than is loaded; None where none selects."""
    coming = [ds.config_digest for ds in daemonsets if not ds.deleting and ds.node_selector.items() <= labels.items()]
    return any(digest != loaded for digest in coming) if coming else None
