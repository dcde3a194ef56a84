"""What is the driver's and what uses the driver: its pods, its DaemonSets, their revisions, and the pods that need it loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpuward import names
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, PodView, RevisionView

POLICYS_POD_APPS = frozenset({names.DRIVER_APP, names.LEFT_DRIVER_APP})
_VALIDATORS_OWN = frozenset({"nvidia-cuda-validator", "nvidia-device-plugin-validator"})


def has_driver_labels(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod's labels are those of a driver pod, also of one that was taken from its DaemonSet."""
    return labels.get("app") in POLICYS_POD_APPS or _is_nvidia_drivers(labels)


def is_staging(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod's labels are those of one that only has the images of a driver pulled; people may have edited one."""
    return labels.get("app") == names.STAGING_APP or names.STAGING_IMAGES in labels


def is_driver_pod(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod holds a node's driver: one of a driver DaemonSet, or one that such a DaemonSet left behind."""
    return pod.namespace == namespace and has_driver_labels(pod.labels) and (pod.orphan or pod.of_daemonset)


def is_hosts_driver_pod(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod holds the driver of a host of vGPUs, of a DaemonSet of an NVIDIADriver's."""
    return pod.namespace == namespace and _is_hosts(pod.labels)


def has_hosts_driver_labels(labels: Mapping[str, str]) -> bool:
    """Tell whether a pod's labels are those of one that brings the driver of a host of vGPUs, whoever makes it."""
    return labels.get("app") == names.VGPU_MANAGER_APP or _is_hosts(labels)


def comes_with_driver(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod comes and goes with the driver: a driver pod, orphaned or not, or one that the validator starts."""
    return is_validation(pod, namespace) or (pod.namespace == namespace and has_driver_labels(pod.labels))


def is_validation(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod is one that the validator starts to try a GPU. It outlives the validator where it hangs."""
    return pod.namespace == namespace and pod.labels.get("app") in _VALIDATORS_OWN


def is_driver_daemonset(ds: DaemonSetView, namespace: str) -> bool:
    """Tell whether a DaemonSet holds drivers, a ClusterPolicy's or an NVIDIADriver's."""
    return ds.namespace == namespace and (is_policys(ds) or _is_nvidia_drivers(ds.labels))


def driver_daemonsets(snapshot: Snapshot) -> list[DaemonSetView]:
    """Return the DaemonSets that hold drivers."""
    return [ds for ds in snapshot.daemonsets if is_driver_daemonset(ds, snapshot.namespace)]


ANEW = "it is made anew once it is gone"


def going(ds: DaemonSetView) -> str:
    """Say that a DaemonSet is being deleted, and what keeps it."""
    kept = f", and is kept by its finalizers {', '.join(ds.kept_by_finalizers)}" if ds.kept_by_finalizers else ""
    return f"is being deleted{kept}"


def is_policys(ds: DaemonSetView) -> bool:
    """Tell whether a DaemonSet holds drivers of a ClusterPolicy."""
    return names.DRIVER_APP in (ds.labels.get("app"), ds.selector.get("app"))


def is_hosts_daemonset(ds: DaemonSetView, namespace: str) -> bool:
    """Tell whether a DaemonSet holds the drivers of hosts of vGPUs, an NVIDIADriver's."""
    return ds.namespace == namespace and _is_hosts(ds.labels)


def is_ownerless(ds: DaemonSetView, namespace: str) -> bool:
    """Tell whether a DaemonSet holds the drivers of an NVIDIADriver that is gone, for containers or for hosts."""
    theirs = is_driver_daemonset(ds, namespace) or is_hosts_daemonset(ds, namespace)
    return ds.owner is None and names.DRIVER_OWNER in ds.node_selector and theirs


def _is_hosts(labels: Mapping[str, str]) -> bool:
    return labels.get(names.COMPONENT_LABEL) == names.VGPU_HOST_COMPONENT or (
        labels.get("app", "").startswith(names.VGPU_HOST_APP_PREFIX))


def _is_nvidia_drivers(labels: Mapping[str, str]) -> bool:
    """Tell so by either of two labels: people may edit the one that no DaemonSet selects its pods by."""
    return labels.get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT or (
        labels.get("app", "").startswith(names.NVIDIA_DRIVER_APP_PREFIXES))


class Revisions(msgspec.Struct, frozen=True):
    """Hold the revisions of one DaemonSet."""

    newest: RevisionView | None = None
    known: frozenset[str] = frozenset()
    """The hashes of all."""
    same: frozenset[str] = frozenset()
    """The hashes of those whose pods differ from the newest's in labels and annotations at most, its own among them."""


def revisions_of(uid: str, revisions: Iterable[RevisionView]) -> Revisions:
    """Return a DaemonSet's revisions. They are found by owner, since one DaemonSet's name may begin another's."""
    own = [revision for revision in revisions if revision.owner_uid == uid]
    newest = max(own, key=lambda revision: (revision.revision, revision.hash), default=None)
    if newest is None:
        return Revisions()
    alike = (each.hash for each in own if newest.pod_digest and each.pod_digest == newest.pod_digest)
    return Revisions(newest, frozenset(each.hash for each in own), frozenset({newest.hash, *alike}))


def has_edited_revision(pod: PodView, template: int) -> bool:
    """Tell whether somebody has edited the label in which a pod names its revision, where its DaemonSet has none of that name: by
    its number it is of the newest template, `template`, or it has no number, which every pod gets.
    """
    return template > 0 and pod.template_generation in (0, template)


def is_newest(pod: PodView, ds: DaemonSetView, found: Revisions) -> bool:
    """Tell whether a pod of a DaemonSet differs from the newest template in labels and annotations at most, by its revision or,
    where somebody has edited that label, by its driver.
    """
    newest = found.newest
    if newest is None or pod.revision in found.known:
        return pod.revision in found.same
    alike = newest.config_digest and pod.config_digest == newest.config_digest and pod.created >= newest.created
    return bool(alike) and has_edited_revision(pod, ds.template_generation)


def uses_driver(pod: PodView, namespace: str, *, variable: bool) -> bool:
    """Tell whether a pod needs the driver that is loaded: it asks for a GPU, or holds the driver and is not one of our own.

    `variable` is what `heeds_variable` says of its node.
    """
    if pod.finished:
        return False
    return pod.uses_gpu or (bool(pod.holds) and pod.namespace != namespace and (variable or not pod.holds_by_variable))


def owner_uid(pod: PodView) -> str:
    """Return the uid of a pod's controller, empty where it has none."""
    return pod.owner.uid if pod.owner is not None else ""


def concerns_driver(pod: PodView, namespace: str) -> bool:
    """Tell whether a pod holds a node's driver, or may need it, whatever its node heeds and its GPUs are for."""
    return is_driver_pod(pod, namespace) or pod.uses_vm_gpu or uses_driver(pod, namespace, variable=True)


def spares_default_runtime(snapshot: Snapshot) -> bool:
    """Tell whether the container toolkit that we deploy leaves the nodes' default runtime as it is."""
    return any(ds.name == names.TOOLKIT_APP and ds.namespace == snapshot.namespace and ds.spares_default_runtime
               for ds in snapshot.daemonsets)


def heeds_variable(node: NodeView | None, spared: bool) -> bool:
    """Tell whether a node's runtime may give a container devices for the variable NVIDIA_VISIBLE_DEVICES alone, given what
    `spares_default_runtime` says: else whoever may create pods could hold the driver by it.

    Only a default runtime of NVIDIA's does. What nobody of ours has set up cannot be known, and may be one.
    """
    ours = node is not None and node.labels.get(names.DEPLOY_TOOLKIT, "false") != "false"
    return not (spared and ours)
