"""The labels of a node that say where its driver comes from, and that a driver which was left behind is to be replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuward import names
from gpuward.labels.policy import LabelPolicy
from gpuward.model.driver import driver_daemonsets, is_driver_pod, is_policys, spares_default_runtime
from gpuward.model.orphans import is_hosts_orphan, is_vfio_orphan, kept_for
from gpuward.model.owners import Claim
from gpuward.model.placement import Placements, after
from gpuward.model.removal import DriverKept
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, State
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.withheld import digests_of, is_withheld, living_daemonsets, loaded_alone, replaces, selecting

REST: Final = 3.0
"""Seconds."""


class DriverLabels:
    """Decide about the drivers of nodes."""

    def __init__(self, snapshot: Snapshot, policy: LabelPolicy, now: float) -> None:
        self._policy = policy
        self._now = now
        self._withheld = snapshot.withheld
        self._namespace = snapshot.namespace
        self._placements = Placements(snapshot, policy.placing)
        self._drivers, self._living = driver_daemonsets(snapshot), living_daemonsets(snapshot)
        self._spared = spares_default_runtime(snapshot)
        self._daemonsets = [ds for ds in snapshot.daemonsets if is_policys(ds) and not ds.deleting]

    def rests_until(self, node: NodeView) -> float | None:
        """Return when a node at the earliest gets back the label by which it gets a driver that pods run on already: who took
        it is about to give a DaemonSet another driver, and would have to take it again.
        """
        at = self._withheld.get(node.uid)
        return at + REST if at is not None and at <= self._now < at + REST and is_withheld(node) else None

    def of(self, node: NodeView, labels: Mapping[str, str | None], pods: Iterable[PodView]) -> dict[str, str | None]:
        """Return the changes for a node with GPUs, whose other labels are about to be these."""
        there, pods = after({}, labels), tuple(pods)
        wanted = self._placements.free(node, there, pods)
        placed = after(there, wanted)
        if self._is_to_be_withheld(node, placed, pods):
            wanted[names.DEPLOY_DRIVER] = None
        if node.state in AT_REST and self._is_automatic(placed) and any(self._is_left(pod, placed) for pod in pods):
            wanted[names.UPGRADE_STATE] = str(State.UPGRADE_REQUIRED)
        return wanted

    def coming(self, node: NodeView, changed: Mapping[str, str | None]) -> frozenset[str]:
        """Return the drivers, by their digests, of the DaemonSets that select a node once its labels are changed."""
        return digests_of(selecting(self._drivers, after(node.labels, changed)), self._namespace)

    def kept_for(self, node: NodeView, pods: Iterable[PodView]) -> DriverKept | None:
        """Return for which pods a node keeps a driver that is to go: that of its host, or one that no DaemonSet owns."""
        pods = tuple(pods)
        return self._placements.kept_for(node, pods) or kept_for(node, pods, self._namespace, spared=self._spared)

    def is_open(self, node: NodeView, pods: Iterable[PodView]) -> bool:
        """Tell whether something else than the node and its pods may change what is decided about it."""
        pods = tuple(pods)
        return is_withheld(node) or self._placements.is_elsewhere(node, pods) or any(
            self._is_orphan(pod) or is_hosts_orphan(pod, self._namespace) or is_vfio_orphan(pod, self._namespace) for pod in pods)

    def is_starting(self, pods: Iterable[PodView]) -> bool:
        """Tell whether a driver pod is not ready, so that its driver manager may be at work."""
        return any(is_driver_pod(pod, self._namespace) and not (pod.ready or pod.finished) for pod in pods)

    def is_replaced(self, pods: Iterable[PodView]) -> bool:
        """Tell whether a driver pod is starting, or goes and another one comes for it."""
        pods = tuple(pods)
        return self.is_starting(pods) or any(is_driver_pod(pod, self._namespace) and pod.deleting for pod in pods)

    def _is_to_be_withheld(self, node: NodeView, placed: Mapping[str, str], pods: Iterable[PodView]) -> bool:
        """Tell whether a node that is about to get a driver pod has to be emptied first; where upgrades are not automatic, the
        driver manager does that. A driver that is withheld already stays so in a pause: nobody is to be evicted by that.
        """
        if placed.get(names.DEPLOY_DRIVER) != "true" or not (is_withheld(node) or self._empties(node, placed)):
            return False
        loaded = loaded_alone(node, pods, self._namespace, self._living, spared=self._spared)
        nobody_empties_it = node.labels.get(names.UPGRADE_SKIP) == "true" or not self._empties(node, placed)
        if loaded is None or (nobody_empties_it and not loaded.used):
            return False
        before, coming = selecting(self._drivers, node.labels), selecting(self._drivers, placed)
        if not coming:
            return is_withheld(node) and (self._policy.claims is None or names.DRIVER_OWNER in placed)
        if loaded.used and self.rests_until(node) is not None:
            return True
        return replaces(coming, loaded) and (before != coming or (loaded.used and not loaded.going))

    def _empties(self, node: NodeView, placed: Mapping[str, str]) -> bool:
        """Tell whether the upgrade empties a node: as it was told last, where no NVIDIADriver is for the node."""
        claims = self._policy.claims
        if claims is not None and _driving(claims, placed.get(names.DRIVER_OWNER)) is None:
            return node.annotations.get(names.UPGRADE_ENABLED) == "true"
        return self._is_automatic(placed)

    def _is_automatic(self, labels: Mapping[str, str]) -> bool:
        if self._policy.claims is None or self._policy.sandbox_workloads:  # with these no driver is upgraded, whosever it is
            return self._policy.driver_upgrades
        found = _driving(self._policy.claims, labels.get(names.DRIVER_OWNER))
        return found is not None and found.auto_upgrade

    def _is_orphan(self, pod: PodView) -> bool:
        return pod.orphan and not (pod.deleting or pod.finished) and is_driver_pod(pod, self._namespace)

    def _is_left(self, pod: PodView, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod holds a driver that no DaemonSet owns, or will take over.

        One is left to NVIDIADrivers, or because the ClusterPolicy's drivers are precompiled now or no longer are, or because the
        DaemonSet that is there now is for pods with other labels.
        """
        if not self._is_orphan(pod) or self._policy.claims is not None:
            return self._is_orphan(pod)
        mode = pod.labels.get(names.PRECOMPILED)
        if mode is not None and mode != str(self._policy.precompiled).lower():
            return True
        there = [ds for ds in self._daemonsets if ds.node_selector.items() <= labels.items()]
        return bool(there) and not any(_adopts(ds, pod) for ds in self._daemonsets)


def claim_of(claims: Iterable[Claim], name: str | None) -> Claim | None:
    """Return what the NVIDIADriver of a name says, if there is one."""
    return next((claim for claim in claims if claim.name == name), None)


def _driving(claims: Iterable[Claim], name: str | None) -> Claim | None:
    """Return what the NVIDIADriver of a name says, if it brings drivers for containers."""
    found = claim_of(claims, name)
    return None if found is not None and found.is_for_hosts else found


def _adopts(ds: DaemonSetView, pod: PodView) -> bool:
    return bool(ds.selector) and ds.selector.items() <= pod.labels.items()
