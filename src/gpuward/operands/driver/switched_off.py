"""The driver DaemonSets of a ClusterPolicy that switches drivers off: they go without their pods, which the upgrade ends node by
node. What these pods need stays until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import Action, DeleteObject, DeletePod
from gpuward.model.driver import POLICYS_POD_APPS, driver_daemonsets, is_driver_daemonset, is_driver_pod, is_ownerless
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, PodView
from gpuward.operands.changes import Prepared
from gpuward.operands.driver.kernels import is_left_behind, left_daemon_sets, removal
from gpuward.policy.unmade import DRIVER_STATE

_WHY: Final = "drivers are switched off"


def switched_off(owner: str, snapshot: Snapshot, *, at_once: bool) -> list[Action]:
    """Return how the driver DaemonSets of a ClusterPolicy (uid) go, and those that are left behind; `at_once` with all pods."""
    owned = _owned(owner, snapshot)
    ownerless = [ds for ds in snapshot.daemonsets if not ds.deleting
                 and is_ownerless(ds, snapshot.namespace) and is_driver_daemonset(ds, snapshot.namespace)]
    sets = [*left_daemon_sets(owned), *ownerless]
    if not at_once:
        return [action for ds in sets for action in removal(ds, [*owned, *ownerless], snapshot, _WHY)]
    orphans = (DeletePod(pod.ref, pod.node, why=_WHY) for pod in _drivers(owned, snapshot) if pod.orphan and not pod.deleting)
    return [*(DeleteObject("DaemonSet", ds.ref, why=_WHY) for ds in sets), *orphans]


def while_needed(prepared: Iterable[Prepared], snapshot: Snapshot, *, left: bool) -> tuple[Prepared, ...]:
    """Return the states without the deletion of driver DaemonSets, which go otherwise, and of what driver pods need: those that
    are there, and where drivers are `left` to NVIDIADrivers those that come.
    """
    needed = any(_needs_account(pod, snapshot.namespace) for pods in snapshot.pods.values() for pod in pods)
    kept = ("DaemonSet", "ConfigMap") if _has_nvidia_drivers(snapshot, left=left) else ("DaemonSet",)
    return tuple(
        msgspec.structs.replace(one, absent=tuple(ref for ref in one.absent if ref.kind not in kept and not needed))
        if one.state == DRIVER_STATE else one
        for one in prepared
    )


def _needs_account(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod is a ClusterPolicy's driver pod, or a driver pod of nobody's. By its label, as its DaemonSet may be on
    its way out, or gone in a cache that does not show yet that the pod was orphaned.
    """
    return is_driver_pod(pod, namespace) and (pod.owner is None or pod.labels.get("app") in POLICYS_POD_APPS)


def _has_nvidia_drivers(snapshot: Snapshot, *, left: bool) -> bool:
    """Tell whether there are DaemonSets of NVIDIADrivers, or will be: their pods mount the ConfigMap of the startup probe."""
    to_come = left and any(not view.deleting for view in snapshot.drivers)
    return "NVIDIADriver" in snapshot.unlisted or to_come or any(
        names.DRIVER_OWNER in ds.node_selector for ds in driver_daemonsets(snapshot))


def _owned(owner: str, snapshot: Snapshot) -> list[DaemonSetView]:
    return [ds for ds in snapshot.daemonsets
            if not ds.deleting and (ds.is_owned_by(owner) or is_left_behind(ds, snapshot.namespace))]


def _drivers(owned: Sequence[DaemonSetView], snapshot: Snapshot) -> Iterable[PodView]:
    """Yield the driver pods that are a ClusterPolicy's, or nobody's."""
    uids = {ds.uid for ds in owned}
    for pods in snapshot.pods.values():
        for pod in pods:
            if is_driver_pod(pod, snapshot.namespace) and (pod.owner is None or pod.owner.uid in uids):
                yield pod
