"""Driver pods that run on without a DaemonSet, and a DaemonSet that would adopt them once it is made.

Kubernetes gives an orphan to whichever DaemonSet selects its labels, and deletes it at once where that does not select its node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.model.actions import Action, ReleasePod
from gpuward.model.driver import is_driver_pod
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView


class Adoption(msgspec.Struct, frozen=True):
    """Hold what keeps a DaemonSet from being made: driver pods that it would delete, and what is done about them."""

    pods: tuple[PodView, ...] = ()
    actions: tuple[Action, ...] = ()


def adoption(body: Mapping[str, Any], snapshot: Snapshot) -> Adoption:
    """Return the driver pods that a DaemonSet would delete if it were made now.

    It is made once their nodes have the labels that it selects by. A pod whose node will not have them, or is not known, as one
    that was made again a moment ago, is made one that nobody adopts; it runs on until its node is upgraded.
    """
    spec: Mapping[str, Any] = body.get("spec", {})
    labels: Mapping[str, str] = spec.get("selector", {}).get("matchLabels", {})
    selector: Mapping[str, str] = spec.get("template", {}).get("spec", {}).get("nodeSelector", {})
    if not labels:
        return Adoption()
    placed = not selector.keys().isdisjoint(names.PLACED_BY)
    living = {ds.uid for ds in snapshot.daemonsets if not ds.deleting}

    def is_lost(pod: PodView, node: NodeView | None) -> bool:
        if node is None:  # one that is not scheduled has none, and one with an owner is for the garbage collector
            return pod.orphan and bool(pod.node)
        return not selector.items() <= node.labels.items() and (placed or _is_undiscovered(node))

    lost = [(pod, node) for pod in _orphans(snapshot, living) if labels.items() <= pod.labels.items()
            and is_lost(pod, node := snapshot.nodes.get(pod.node))]
    released = tuple(
        ReleasePod(pod.ref, pod.node, "", why=f"DaemonSet {body['metadata']['name']} would take it, and is not for its node")
        for pod, node in lost if pod.orphan and not _is_to_be_selected(node, selector, snapshot)
    )
    return Adoption(tuple(pod for pod, _ in lost), released)


def _orphans(snapshot: Snapshot, living: set[str]) -> Iterable[PodView]:
    for pods in snapshot.pods.values():
        for pod in pods:
            left = pod.orphan or (pod.owner is not None and pod.owner.uid not in living)
            if left and not (pod.deleting or pod.finished) and is_driver_pod(pod, snapshot.namespace):
                yield pod


def _is_undiscovered(node: NodeView) -> bool:
    """Tell whether a node has yet to get all of its labels, as one that was made again: whoever wants no driver says so there.
    That it has a GPU may be a label of its node pool.
    """
    told = names.DEPLOY_DRIVER in node.labels or node.labels.get(names.DEPLOY_OPERANDS) == "false"
    labelled = node.gpu_present and any(key.startswith(names.DEPLOY_PREFIX) for key in node.labels)
    return not (told or labelled)


def _is_to_be_selected(node: NodeView | None, selector: Mapping[str, str], snapshot: Snapshot) -> bool:
    """Tell whether a node only lacks labels that it is about to get."""
    if node is None:
        return False
    seen = any(node.labels.get(label) == "true" for label in names.NFD_GPU_LABELS)
    if node.uid in snapshot.refused_writes or not (seen if _is_undiscovered(node) else node.gpu_present):
        return False
    return all(node.labels.get(key, value) == value for key, value in selector.items() if key in names.PLACED_BY)
