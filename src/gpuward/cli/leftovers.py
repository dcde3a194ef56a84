"""What of a GPU operator is left on a node, and what of it has to stay: pure decisions of `gpuward cleanup`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.cordons import is_of_nvidias, is_somebody_elses
from gpuward.model.driver import comes_with_driver, has_driver_labels, uses_driver
from gpuward.model.marks import ours
from gpuward.model.record import UNTOLD_DRIVER, CordonOwner, Record, encode_record, left_unvalidated
from gpuward.model.states import State
from gpuward.model.told import ToldCondition
from gpuward.model.views import NodeView, PodView, Ref
from gpuward.wire.claims import with_claims
from gpuward.wire.nodes import node_view
from gpuward.wire.pods import pod_view

Object = dict[str, Any]

LABELS: Final = frozenset({names.GPU_PRESENT, names.UPGRADE_STATE, names.DRIVER_OWNER})
ANNOTATIONS: Final = frozenset({
    names.UPGRADE_ENABLED, names.UPGRADE_REQUESTED, names.SAFE_LOAD, names.INITIALLY_UNSCHEDULABLE, names.WAIT_FOR_JOBS_SINCE,
    names.VALIDATION_SINCE,
})
_TURNED_ON: Final = frozenset({"true", names.PRE_INSTALLED, ""})
"""Values of labels of operands that an operator sets; the driver manager gives an empty one to each operand that has none."""
DEFAULT_MIG_CONFIG: Final = "all-disabled"
"""What a ClusterPolicy has an operator write where nobody chose a layout."""
PAUSED: Final = "paused-for-"
"""How the values begin that the driver manager writes while it replaces a driver."""
_UNCHOSEN: Final = ("NotIn", "DoesNotExist")
"""Operators of an affinity that a label which goes cannot fail."""
_UNVALIDATED: Final = frozenset({State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.FAILED})
NOT_SEEN: Final = "its pods may not be listed, and may run on it"
OFFERS: Final = "the node still offers GPUs, so that pods may come to it"


class Cleaning(msgspec.Struct, frozen=True):
    """Hold what is to be done with a node, and what stays there."""

    patch: PatchNode | None = None
    version: str = ""
    """The version of the node that was read: nobody may have changed anything about it since."""
    stays: tuple[str, ...] = ()
    """What stays, and why, for people."""
    conditions: tuple[ToldCondition, ...] = ()
    """Conditions of the node that go."""
    node: Ref | None = None
    """The node of these."""

    @property
    def is_idle(self) -> bool:
        return self.patch is None and not self.conditions


def has_any(raw: bytes | msgspec.Raw) -> bool:
    """Tell whether anything of an operator is on a node."""
    meta = msgspec.json.decode(raw, type=Object)["metadata"]
    marks = ours(meta.get("labels") or {}, meta.get("annotations") or {})
    meant = any(one.ours for one in node_view(raw).told)
    return meant or bool(_ours(meta.get("labels"), LABELS) or _ours(meta.get("annotations"), ANNOTATIONS) or marks)


def cleaning_of(raw: bytes, pods: Iterable[bytes | msgspec.Raw] | None, namespace: str) -> Cleaning:
    """Return what is to be taken off a node on which these pods are; None where nobody may tell which are.

    The labels stay by which a pod chose the node: its controller, or a kubelet that restarts, would end it. Which driver is
    loaded stays known while anything may run on it: another driver must not come under that, whoever installs it.
    """
    view, meta = node_view(raw), msgspec.json.decode(raw, type=Object)["metadata"]
    found = [bytes(pod) for pod in pods or ()]
    marks = ours(meta.get("labels") or {}, meta.get("annotations") or {})
    labels = {**_ours(meta.get("labels"), LABELS), **marks.labels}
    annotations = {**_ours(meta.get("annotations"), ANNOTATIONS), **marks.annotations}
    chosen = {key: pod for key, pod in _chosen_by(found).items() if key in labels}
    stays = [f"{key} stays, as {pod} chose the node by it" for key, pod in sorted(chosen.items())]
    record = annotations.get(names.UPGRADE_RECORD, "")
    remembered = _remembered(view) if record else ""
    user = NOT_SEEN if pods is None else _user_of_driver(map(pod_view, found), namespace)
    if remembered and (user := user or (OFFERS if is_cordoned_with_gpus(raw) else "")):
        stays.append(f"{names.UPGRADE_RECORD} stays and tells which driver is loaded, as {user}")
    else:
        remembered = ""
    labels = {key: value for key, value in labels.items() if key not in chosen}
    written: dict[str, str | None] = dict.fromkeys(annotations)
    if remembered == record:
        written.pop(names.UPGRADE_RECORD, None)
    elif remembered:
        written[names.UPGRADE_RECORD] = remembered
    told = tuple(one for one in view.told if one.ours)
    if not (labels or written):
        return Cleaning(None, view.version, tuple(stays), told, view.ref if told else None)
    lift = _is_our_cordon(view)
    patch = PatchNode(
        view.ref, dict.fromkeys(labels), written, False if lift else None,
        expect_labels=labels, expect_annotations=annotations, expect_unschedulable=True if lift else None,
    )
    return Cleaning(patch, view.version, tuple(stays), told, view.ref)


def is_cordoned_with_gpus(raw: bytes | msgspec.Raw) -> bool:
    """Tell whether GPU pods would come to a node as soon as our cordon is lifted: its kubelet still offers GPUs."""
    offered = (msgspec.json.decode(raw, type=Object).get("status") or {}).get("allocatable") or {}
    gpus = any(key.startswith(names.GPU_RESOURCE_PREFIXES) and value != "0" for key, value in offered.items())
    return gpus and _is_our_cordon(node_view(bytes(raw)))


def told(cleaning: Cleaning) -> str:
    """Say what a cleaning does, and what it leaves, nothing if there is neither."""
    patch = cleaning.patch or PatchNode(Ref("", ""))
    removed = sum(value is None for value in patch.annotations.values())
    counts = ((len(patch.labels), "label"), (removed, "annotation"), (len(cleaning.conditions), "condition"))
    parts = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    counted = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    done = ", ".join(filter(None, (counted and f"{counted} removed", "uncordoned" if patch.unschedulable is False else "")))
    return "; ".join(filter(None, (done, *cleaning.stays)))


def goes_by_labels(daemonset: Object) -> bool:
    """Tell whether a DaemonSet, whoever made it, selects nodes by a label that would go: its pods would end."""
    return any(key in LABELS or key.startswith((names.DEPLOY_PREFIX, names.OWN_PREFIX))
               for key in _chosen(daemonset["spec"]["template"]["spec"]))


def is_ending_driver(raw: bytes | msgspec.Raw, namespace: str) -> bool:
    """Tell whether a pod holds a driver and is about to go: its DaemonSet, which nobody goes by any more, is gone."""
    pod = pod_view(raw)
    return pod.namespace == namespace and has_driver_labels(pod.labels) and (pod.deleting or pod.owner is not None)


def _chosen(spec: Mapping[str, Any]) -> set[str]:
    """Return the labels that a node must have for pods of a spec, as they say."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    asked = (one for term in required.get("nodeSelectorTerms") or () for one in term.get("matchExpressions") or ())
    return {*(spec.get("nodeSelector") or {}), *(one["key"] for one in asked if one.get("operator") not in _UNCHOSEN)}


def _chosen_by(pods: Iterable[bytes]) -> dict[str, str]:
    """Return the labels by which the pods of a node chose it, with one of the pods; without those that go, or that are of a
    DaemonSet: one that is left does not go by labels that go, and the pods of one that is gone end in any case.
    """
    found: dict[str, str] = {}
    for raw in pods:
        pod, read = pod_view(raw), msgspec.json.decode(raw, type=Object)
        if not (pod.finished or pod.deleting or _is_of_daemonset(read["metadata"])):
            found |= dict.fromkeys(_chosen(read["spec"]), f"pod {pod.ref}")
    return found


def _is_of_daemonset(meta: Mapping[str, Any]) -> bool:
    """Tell whether a pod is of a DaemonSet of Kubernetes' own: others have kinds of this name, too."""
    return any(owner.get("controller") and owner["kind"] == "DaemonSet" and str(owner.get("apiVersion")).startswith("apps/")
               for owner in meta.get("ownerReferences") or ())


def _ours(values: Mapping[str, str] | None, known: Iterable[str]) -> dict[str, str]:
    return {key: value for key, value in (values or {}).items() if _is_ours(key, value, known)}


def _is_ours(key: str, value: str, known: Iterable[str]) -> bool:
    """Tell whether an operator set a label or annotation, and not a person."""
    if key.startswith(names.DEPLOY_PREFIX):
        return value in _TURNED_ON or value.startswith(PAUSED)
    if key == names.MIG_CONFIG:
        return value == DEFAULT_MIG_CONFIG
    return key in known or key.startswith(names.OWN_PREFIX)


def _is_our_cordon(view: NodeView) -> bool:
    """Tell whether an upgrade that nobody would bring to its end any more has cordoned the node, ours or a driver manager's, of
    which NVIDIA's leaves no note.
    """
    ours = view.record is not None and view.record.cordon is CordonOwner.GPUWARD
    noted = view.annotations.get(names.DRIVER_MANAGER_CORDON) == "true" and not is_somebody_elses(view)
    return view.unschedulable and (ours or noted or is_of_nvidias(view))


def _remembered(view: NodeView) -> str:
    """Return what stays of a node's record where its driver may be in use: as if it had left the fleet. Nothing where no driver
    was loaded; of a record that cannot be read nobody knows which one was.
    """
    record = view.record
    if record is None:
        return encode_record(Record(since=view.created, loaded=UNTOLD_DRIVER))
    if not record.loaded:
        return ""
    unvalidated = left_unvalidated(record) or record.state in _UNVALIDATED
    return encode_record(Record(since=record.since, pods=record.pods, forced=unvalidated, loaded=record.loaded))


def _user_of_driver(pods: Iterable[PodView], namespace: str) -> str:
    """Say what runs on the driver that is loaded on a node, or keeps it loaded, or may be about to; nothing if nothing does.

    Whether a claim is for GPUs is not asked: one that may be counts.
    """
    for pod in pods:
        known = with_claims(pod, lambda place: None)
        if known.finished:
            continue
        if known.namespace == namespace and has_driver_labels(known.labels):
            return f"driver pod {known.ref} is still there"
        if uses_driver(known, namespace, variable=True) and not comes_with_driver(known, namespace):
            return f"pod {known.ref} may run on it"
    return ""
