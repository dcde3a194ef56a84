"""What a driver manager that was killed left on a node, and who gives it back: the next one, or the operator where none comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.driver import is_driver_daemonset, is_driver_pod, is_hosts_driver_pod, owner_uid
from gpuward.model.pauses import restore_labels
from gpuward.model.record import CordonOwner
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.withheld import selecting
from gpuward.model.workloads import HOST_DRIVERS

_HOSTS = frozenset({names.VFIO_MANAGER_APP, names.VGPU_MANAGER_APP})
"""DaemonSets for virtual machines whose pods begin with a driver manager, too."""


class DriverManagers:
    """Know on which nodes a driver manager may be at work, or is to come."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._namespace = snapshot.namespace
        self._daemonsets = [ds for ds in snapshot.daemonsets if self._has_manager(ds)]
        self._hosts = frozenset(ds.uid for ds in self._daemonsets if ds.name in _HOSTS)

    @staticmethod
    def left_anything(node: NodeView) -> bool:
        """Tell whether something on a node is a driver manager's, which goes by more than the node and its pods."""
        return names.DRIVER_MANAGER_CORDON in node.annotations or bool(_paused(node))

    def give_back(self, patch: PatchNode | None, node: NodeView, pods: Sequence[PodView]) -> PatchNode | None:
        """Return a node's patch with what is given back: labels that are paused, and the driver manager's cordon, where none is
        on the node or comes. The cordon alone goes where the one that came has ended, and the note of it where it is lifted.
        """
        if not self.left_anything(node):
            return patch
        there = [pod for pod in pods if not pod.finished and self._has_one(pod)]
        gone = not there and not selecting(self._daemonsets, node.labels)
        labels = _paused(node) if gone else {}
        noted = names.DRIVER_MANAGER_CORDON in node.annotations
        ended = bool(there) and all(pod.ready and not pod.deleting for pod in there) and node.state in AT_REST
        lift = noted and node.unschedulable and (gone or ended) and not _is_upgrades(node)
        forget = noted and not node.unschedulable
        if not (labels or lift or forget):
            return patch
        return _with(patch, node, pods, labels, lift=lift, forget=forget)

    def _has_manager(self, ds: DaemonSetView) -> bool:
        hosts = ds.name in _HOSTS or ds.labels.get(names.COMPONENT_LABEL) == names.VGPU_HOST_COMPONENT
        return is_driver_daemonset(ds, self._namespace) or (hosts and ds.namespace == self._namespace)

    def _has_one(self, pod: PodView) -> bool:
        driver = is_driver_pod(pod, self._namespace) or is_hosts_driver_pod(pod, self._namespace)
        named = pod.owner is not None and pod.owner.name in _HOSTS and pod.namespace == self._namespace
        return driver or named or owner_uid(pod) in self._hosts


def _paused(node: NodeView) -> dict[str, str]:
    """Return what the labels were that are paused. Those by which drivers come are paused by nobody: a person wrote them so."""
    return {key: value for key, value in restore_labels(node.labels).items() if key not in HOST_DRIVERS}


def _is_upgrades(node: NodeView) -> bool:
    return node.record is not None and node.record.cordon is CordonOwner.GPUWARD


def _with(patch: PatchNode | None, node: NodeView, pods: Sequence[PodView], labels: Mapping[str, str], *, lift: bool,
          forget: bool) -> PatchNode:
    base = patch or PatchNode(node.ref, has_annotations=node.has_annotations, why="no driver manager is at work there")
    note = {names.DRIVER_MANAGER_CORDON: None} if lift or forget else {}
    return msgspec.structs.replace(
        base,
        labels={**labels, **base.labels},
        annotations={**base.annotations, **note},
        unschedulable=False if lift else None,
        expect_labels={**{key: node.labels[key] for key in labels}, **base.expect_labels},
        expect_annotations={**base.expect_annotations, **{key: node.annotations[key] for key in note}},
        expect_unschedulable=node.unschedulable if note else None,
        known_pods={pod.uid: owner_uid(pod) for pod in pods} if labels or lift else base.known_pods,
    )
