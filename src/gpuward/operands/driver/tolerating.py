"""Tolerations that people take from drivers though a node has the taint: the DaemonSet controller would delete its driver pod."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator
from typing import Final

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.driver import heeds_variable, is_driver_daemonset, is_hosts_daemonset, spares_default_runtime
from gpuward.model.orphans import is_driver_orphan
from gpuward.model.snapshot import Snapshot
from gpuward.model.taints import Taint, Toleration
from gpuward.model.views import DaemonSetView, PodView
from gpuward.model.workloads import uses_gpus
from gpuward.operands.changes import Prepared, WantedObject

DrivenOut = tuple[str, Taint, str]
_DRIVES_OUT: Final = "NoExecute"
"""The effect of taints for which a DaemonSet's controller deletes the pods that are there, whatever its update strategy."""


def no_longer_tolerated(prepared: Iterable[Prepared], snapshot: Snapshot, field: str) -> PolicyError | None:
    """Refuse tolerations, which `field` has, that lack one by which a driver pod is where pods use its driver."""
    for obj, (node, taint, user) in _driving_out(prepared, snapshot):
        return PolicyError(field, _tolerations(obj), (
            f"tolerate {taint} as before: the driver pod of node {node}, which has this taint, would be deleted at once "
            f"under pod {user}; or take the taint or the pods away first"))
    return None


def that_tolerate(prepared: Iterable[Prepared], snapshot: Snapshot) -> list[Prepared]:
    """Leave out the DaemonSets that lack such a toleration."""
    some = tuple(prepared)
    lacking = {obj.key for obj, _ in _driving_out(some, snapshot)}
    return [msgspec.structs.replace(one, objects=tuple(obj for obj in one.objects if obj.key not in lacking)) for one in some]


def _driving_out(prepared: Iterable[Prepared], snapshot: Snapshot) -> Iterator[tuple[WantedObject, DrivenOut]]:
    """Yield the DaemonSets for which a driver pod would be deleted, each with the first one."""
    there = {ds.name: ds for ds in snapshot.daemonsets if not ds.deleting and ds.namespace == snapshot.namespace}
    for obj in (obj for one in prepared for obj in one.objects if obj.key[0] == "DaemonSet"):
        ds = there.get(obj.ref.name)
        if ds is not None and not _brings_driver(ds, snapshot.namespace):
            continue
        if (found := _driven_out(obj, ds, snapshot)) is not None:
            yield obj, found


def _tolerations(obj: WantedObject) -> list[object]:
    return obj.body["spec"]["template"]["spec"].get("tolerations") or []


def _brings_driver(ds: DaemonSetView, namespace: str) -> bool:
    """Tell whether a DaemonSet brings a driver to nodes, for containers or for virtual machines."""
    manages = ds.namespace == namespace and ds.name in (names.VGPU_MANAGER_APP, names.VFIO_MANAGER_APP)
    return manages or is_driver_daemonset(ds, namespace) or is_hosts_daemonset(ds, namespace)


def _driven_out(obj: WantedObject, ds: DaemonSetView | None, snapshot: Snapshot) -> DrivenOut | None:
    """Return the first node on which a driver pod would be deleted under a pod that uses it, with the taint and that pod. Of a
    DaemonSet that is gone the driver pods that it left are adopted; where one runs in spite of a taint, it tolerates that.
    """
    wanted = msgspec.convert(_tolerations(obj), tuple[Toleration, ...])
    if ds is not None and (ds.tolerations is None or set(ds.tolerations) <= set(wanted)):
        return None
    selected = obj.body["spec"]["selector"]["matchLabels"].items()
    spared = spares_default_runtime(snapshot)
    for node in sorted(snapshot.nodes.values(), key=lambda each: each.name):
        lost = [taint for taint in node.taints if taint.effect == _DRIVES_OUT and not _covers(wanted, taint)
                and (ds is None or ds.tolerations is None or _covers(ds.tolerations, taint))]
        pods = snapshot.pods.get(node.name, ())
        if not lost or not any(_is_of(ds, pod, selected, snapshot.namespace) for pod in pods):
            continue
        variable = heeds_variable(node, spared)
        users = sorted(str(pod.ref) for pod in pods if uses_gpus(pod, snapshot.namespace, variable=variable))
        if users:
            return node.name, lost[0], users[0]
    return None


def _is_of(ds: DaemonSetView | None, pod: PodView, selected: ItemsView[str, str], namespace: str) -> bool:
    """Tell whether a pod belongs to a DaemonSet, or to none and would to the one that selects by these labels."""
    if pod.deleting or pod.finished:
        return False
    return pod.is_owned_by(ds.uid) if ds is not None else is_driver_orphan(pod, namespace) and selected <= pod.labels.items()


def _covers(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(one.covers(taint) for one in tolerations)
