"""Nodes that still offer GPUs though no driver is to be on them any more: they do so until their device plugin has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView


def device_plugins(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
    """Return which nodes the DaemonSets select whose pods offer GPUs, by uid; those that are about to go select none."""
    return {ds.uid: ds.node_selector for ds in snapshot.daemonsets
            if not ds.deleting and ds.namespace == snapshot.namespace and ds.selector.get("app") in names.OFFER_GPUS}


def going(pods: Iterable[PodView], node: NodeView, namespace: str, plugins: Mapping[str, Mapping[str, str]]) -> PodView | None:
    """Return a pod on a node that offers its GPUs, and is about to stop: the scheduler counts on these until it has."""
    return next((pod for pod in pods if _offers_gpus(pod, namespace) and not _stays(pod, node, plugins)), None)


def _offers_gpus(pod: PodView, namespace: str) -> bool:
    return pod.namespace == namespace and pod.of_daemonset and not pod.finished and pod.labels.get("app") in names.OFFER_GPUS


def _stays(pod: PodView, node: NodeView, plugins: Mapping[str, Mapping[str, str]]) -> bool:
    selector = plugins.get(pod.owner.uid) if pod.owner is not None else None
    return not pod.deleting and selector is not None and selector.items() <= node.labels.items()
