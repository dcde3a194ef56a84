"""What a driver manager that was killed left on a node, and who gives it back: the next one, or the operator where none comes, or
one has ended. Labels that are paused then, whoever paused them, nobody else would give back: GPUs would never be offered again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.cordons import is_driver_managers, is_of_nvidias, is_somebody_elses
from gpuward.model.driver import is_driver_daemonset, is_driver_pod, is_hosts_daemonset, is_hosts_driver_pod, owner_uid
from gpuward.model.pauses import labels_noted, note_of, restore_labels
from gpuward.model.record import CordonOwner
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, State
from gpuward.model.views import DaemonSetView, NodeView, PodView
from gpuward.model.withheld import selecting
from gpuward.model.workloads import HOST_DRIVERS

_HOSTS = frozenset({names.VFIO_MANAGER_APP, names.VGPU_MANAGER_APP})
"""DaemonSets for virtual machines whose pods begin with a driver manager, too."""

_BEFORE_ADMISSION = AT_REST | {State.UPGRADE_REQUIRED}
"""States in which no upgrade has taken the cordon over. One that starts meanwhile leaves them, so that the lifting fails."""
_REPLACED = frozenset({State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED, State.FAILED})
"""States of an upgrade in which no driver is about to go: what is paused beside one that is ready keeps it unvalidated."""


class DriverManagers:
    """Know on which nodes a driver manager may be at work, or is to come."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._namespace = snapshot.namespace
        self._daemonsets = [ds for ds in snapshot.daemonsets if self._has_manager(ds)]
        self._hosts = frozenset(ds.uid for ds in self._daemonsets if ds.name in _HOSTS)

    @staticmethod
    def left_anything(node: NodeView) -> bool:
        """Tell whether something on a node is a driver manager's, which goes by more than the node and its pods."""
        noted = names.DRIVER_MANAGER_CORDON in node.annotations or names.DRIVER_MANAGER_PAUSE in node.annotations
        return noted or is_of_nvidias(node) or bool(_restored(node))

    def give_back(self, patch: PatchNode | None, node: NodeView, pods: Sequence[PodView]) -> PatchNode | None:
        """Return a node's patch with what is given back: labels that the driver manager has paused, and its cordon, where none is
        on the node or comes. What one that has ended left goes, too, and a note where what it tells of is over.
        """
        if not self.left_anything(node):
            return patch
        there = [pod for pod in pods if not pod.finished and self._has_one(pod)]
        comes = bool(selecting(self._daemonsets, node.labels))
        gone = not there and not comes
        serves = bool(there) and all(pod.ready and not pod.deleting for pod in there)
        if there and not comes and not serves and names.DRIVER_MANAGER_PAUSE not in node.annotations and _restored(node):
            return _noting(patch, node)
        ended = serves and node.state in _BEFORE_ADMISSION
        back = ended or (serves and node.state in _REPLACED)
        labels = _paused(node) if gone else _restored(node) if back else {}
        lift = (gone or ended) and is_driver_managers(node) and not _is_upgrades(node)
        over = {names.DRIVER_MANAGER_CORDON: lift or not node.unschedulable or is_somebody_elses(node),
                names.DRIVER_MANAGER_PAUSE: gone or not _paused(node)}
        notes = [note for note, is_over in over.items() if is_over and note in node.annotations]
        return _with(patch, node, pods, labels, lift=lift, notes=notes) if labels or notes or lift else patch

    def _has_manager(self, ds: DaemonSetView) -> bool:
        managers = ds.name in _HOSTS and ds.namespace == self._namespace
        return managers or is_driver_daemonset(ds, self._namespace) or is_hosts_daemonset(ds, self._namespace)

    def _has_one(self, pod: PodView) -> bool:
        driver = is_driver_pod(pod, self._namespace) or is_hosts_driver_pod(pod, self._namespace)
        named = pod.owner is not None and pod.owner.name in _HOSTS and pod.namespace == self._namespace
        return driver or named or owner_uid(pod) in self._hosts


def _paused(node: NodeView) -> dict[str, str]:
    """Return what the labels were that our driver manager has paused. It pauses none of those by which drivers come: a person
    wrote them so.
    """
    return _restored(node) if names.DRIVER_MANAGER_PAUSE in node.annotations else {}


def _restored(node: NodeView) -> dict[str, str]:
    found = restore_labels(node.labels, *labels_noted(node.annotations.get(names.DRIVER_MANAGER_PAUSE, "")))
    return {key: value for key, value in found.items() if key not in HOST_DRIVERS}


def _is_upgrades(node: NodeView) -> bool:
    return node.record is not None and node.record.cordon is CordonOwner.GPUWARD


def _noting(patch: PatchNode | None, node: NodeView) -> PatchNode:
    """Note whose the pause is, where the driver manager that may have made it goes for good with its pod: NVIDIA's leaves no
    note, and once it has gone nothing tells its pause from one that a person made.
    """
    base = patch or PatchNode(node.ref, has_annotations=node.has_annotations, why="its driver manager goes before it has ended")
    return msgspec.structs.replace(
        base,
        annotations={**base.annotations, names.DRIVER_MANAGER_PAUSE: note_of(())},
        expect_labels={**{key: node.labels[key] for key in _restored(node)}, **base.expect_labels},
        expect_annotations={**base.expect_annotations, names.DRIVER_MANAGER_PAUSE: None},
    )


def _with(patch: PatchNode | None, node: NodeView, pods: Sequence[PodView], labels: Mapping[str, str], *, lift: bool,
          notes: Sequence[str]) -> PatchNode:
    base = patch or PatchNode(node.ref, has_annotations=node.has_annotations, why="no driver manager is at work there")
    # A driver manager that pauses labels at this moment has not left its note for nothing.
    own = labels_noted(node.annotations.get(names.DRIVER_MANAGER_PAUSE))
    read = [key for key in node.labels if key.startswith(names.DEPLOY_PREFIX) or key in own] if (
        names.DRIVER_MANAGER_PAUSE in notes) else []
    return msgspec.structs.replace(
        base,
        labels={**labels, **base.labels},
        annotations={**base.annotations, **dict.fromkeys(notes)},
        unschedulable=False if lift else None,
        expect_labels={**({names.UPGRADE_STATE: node.labels.get(names.UPGRADE_STATE)} if lift or labels else {}),
                       **{key: node.labels[key] for key in (*read, *labels)}, **base.expect_labels},
        expect_annotations={**base.expect_annotations, **{key: node.annotations[key] for key in notes}},
        expect_unschedulable=node.unschedulable if lift or names.DRIVER_MANAGER_CORDON in notes else None,
        known_pods={pod.uid: owner_uid(pod) for pod in pods} if labels or lift else base.known_pods,
    )
