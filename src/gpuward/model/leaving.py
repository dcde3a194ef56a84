"""What is about to go from a node: its driver, and what offers its GPUs, on which the scheduler counts until it has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpuward import names
from gpuward.model.driver import has_hosts_driver_labels, is_driver_pod
from gpuward.model.orphans import unwanted
from gpuward.model.pauses import paused
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView


class Leaving(msgspec.Struct, frozen=True):
    """Know which pods are about to go, as their DaemonSets do not select their nodes, or go."""

    namespace: str
    selectors: Mapping[str, Mapping[str, str]]
    """Which nodes the DaemonSets select that are not about to go, by uid."""

    def device_plugin(self, node: NodeView, pods: Iterable[PodView]) -> PodView | None:
        """Return a pod on a node that offers its GPUs, and is about to stop."""
        return next((pod for pod in pods if self._offers_gpus(pod) and not self._stays(pod, node)), None)

    def from_node(self, node: NodeView, pods: Iterable[PodView]) -> PodView | None:
        """Return a pod on a node that offers its GPUs, or else one that has brought a driver, and is about to stop."""
        there = tuple(pods)
        return self.device_plugin(node, there) or self.driver(node, there)

    def from_changing(self, node: NodeView, pods: Iterable[PodView]) -> PodView | None:
        """Return the same of a node whose device plugin goes before its driver: that is about to follow where no label lets
        anything offer the GPUs.
        """
        there = tuple(pods)
        follows = not any(key in node.labels for key in names.OFFERED_BY)
        return self.from_node(node, there) or next((pod for pod in there if follows and self._brings_driver(pod)), None)

    def offering(self, node: NodeView, pods: Iterable[PodView]) -> PodView | None:
        """Return a pod that offers a node's GPUs, and would stop if the label were paused by which it came. One that stops by
        itself offers them until it has, and another one comes in its place.
        """
        value = node.labels.get(names.DEPLOY_PLUGIN, "")
        if paused(value) == value:
            return None
        without = msgspec.structs.replace(node, labels={**node.labels, names.DEPLOY_PLUGIN: paused(value)})
        return next((pod for pod in pods if self._offers_gpus(pod) and self._is_selected(pod, node)
                     and not self._is_selected(pod, without)), None)

    def follows(self, node: NodeView, pods: Iterable[PodView]) -> bool:
        """Tell whether a pod that has brought a driver is there and not about to stop yet: it goes after what offers the GPUs."""
        there = tuple(pods)
        return self.driver(node, there) is None and any(self._brings_driver(pod) for pod in there)

    def driver(self, node: NodeView, pods: Iterable[PodView]) -> PodView | None:
        """Return a pod on a node that has brought a driver, and is about to stop."""
        return next((pod for pod in pods if self._brings_driver(pod) and not self._stays(pod, node)), None)

    def is_offered(self, pods: Iterable[PodView]) -> bool:
        """Tell whether a pod offers a node's GPUs, be it about to stop or not."""
        return any(self._offers_gpus(pod) for pod in pods)

    def stops_offers(self, node: NodeView, pods: Iterable[PodView]) -> bool:
        """Tell whether all pods that offer a node's GPUs are about to stop."""
        return not any(self._offers_gpus(pod) and self._stays(pod, node) for pod in pods)

    def _offers_gpus(self, pod: PodView) -> bool:
        return (pod.namespace == self.namespace and pod.of_daemonset and not pod.finished
                and pod.labels.get("app") in names.OFFER_GPUS)

    def _brings_driver(self, pod: PodView) -> bool:
        if pod.namespace != self.namespace or pod.finished or not (pod.of_daemonset or pod.orphan):
            return False
        return is_driver_pod(pod, self.namespace) or brings_hosts_driver(pod, self.namespace)

    def _stays(self, pod: PodView, node: NodeView) -> bool:
        return not pod.deleting and self._is_selected(pod, node)

    def _is_selected(self, pod: PodView, node: NodeView) -> bool:
        if pod.owner is None:
            return not unwanted(node, (pod,), self.namespace)
        selector = self.selectors.get(pod.owner.uid)
        return selector is not None and selector.items() <= node.labels.items()


def brings_hosts_driver(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod has brought the driver by which virtual machines have GPUs."""
    if pod.namespace != namespace or pod.finished or not (pod.of_daemonset or pod.orphan):
        return False
    return has_hosts_driver_labels(pod.labels) or pod.labels.get("name") == names.VFIO_MANAGER_APP


def leaving_of(snapshot: Snapshot) -> Leaving:
    """Return what is known by the DaemonSets of a snapshot."""
    return Leaving(snapshot.namespace, {ds.uid: ds.node_selector for ds in snapshot.daemonsets
                                        if not ds.deleting and ds.namespace == snapshot.namespace})
