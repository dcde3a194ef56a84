"""Tolerations that people take from drivers though a node has the taint: the DaemonSet controller would delete its driver pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.driver import heeds_variable, is_driver_daemonset, is_hosts_daemonset, spares_default_runtime
from gpuward.model.snapshot import Snapshot
from gpuward.model.taints import Taint, Toleration
from gpuward.model.views import DaemonSetView
from gpuward.model.workloads import uses_gpus
from gpuward.operands.changes import Prepared

_DRIVES_OUT: Final = "NoExecute"
"""The effect of taints for which a DaemonSet's controller deletes the pods that are there, whatever its update strategy."""


def no_longer_tolerated(prepared: Iterable[Prepared], snapshot: Snapshot, field: str) -> PolicyError | None:
    """Refuse tolerations, which `field` has, that lack one by which a driver pod is where pods use its driver."""
    there = {ds.name: ds for ds in snapshot.daemonsets if not ds.deleting and _brings_driver(ds, snapshot.namespace)}
    for one in prepared:
        for obj in one.objects:
            if obj.key[0] != "DaemonSet" or (ds := there.get(obj.ref.name)) is None:
                continue
            wanted = obj.body["spec"]["template"]["spec"].get("tolerations") or []
            if (found := _driven_out(ds, msgspec.convert(wanted, tuple[Toleration, ...]), snapshot)) is not None:
                node, taint, user = found
                return PolicyError(field, wanted, (
                    f"tolerate {taint} as before: the driver pod of node {node}, which has this taint, would be deleted at once "
                    f"under pod {user}; or take the taint or the pods away first"))
    return None


def _brings_driver(ds: DaemonSetView, namespace: str) -> bool:
    """Tell whether a DaemonSet brings a driver to nodes, for containers or for virtual machines."""
    manages = ds.namespace == namespace and ds.name in (names.VGPU_MANAGER_APP, names.VFIO_MANAGER_APP)
    return manages or is_driver_daemonset(ds, namespace) or is_hosts_daemonset(ds, namespace)


def _driven_out(ds: DaemonSetView, wanted: tuple[Toleration, ...], snapshot: Snapshot) -> tuple[str, Taint, str] | None:
    """Return the first node on which a driver pod would be deleted under a pod that uses it, with the taint and that pod."""
    if ds.tolerations is None or set(ds.tolerations) <= set(wanted):
        return None
    spared = spares_default_runtime(snapshot)
    for node in sorted(snapshot.nodes.values(), key=lambda each: each.name):
        lost = [taint for taint in node.taints if taint.effect == _DRIVES_OUT and _covers(ds.tolerations, taint)
                and not _covers(wanted, taint)]
        pods = snapshot.pods.get(node.name, ())
        if not lost or not any(pod.is_owned_by(ds.uid) and not (pod.deleting or pod.finished) for pod in pods):
            continue
        variable = heeds_variable(node, spared)
        users = sorted(str(pod.ref) for pod in pods if uses_gpus(pod, snapshot.namespace, variable=variable))
        if users:
            return node.name, lost[0], users[0]
    return None


def _covers(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(one.covers(taint) for one in tolerations)
