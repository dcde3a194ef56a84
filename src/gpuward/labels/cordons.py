"""Our cordon on a node whose driver goes by a change of its labels: it goes on offering its GPUs until its device plugin has
stopped. The cordon comes in the patch of the labels. The upgrade lifts it (`upgrade/changing.py`).

No cordon keeps a pod away that names its node, or tolerates cordons. A kubelet does, once nothing offers the GPUs. So the device
plugin goes first, and the driver follows if nothing has come to use it by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import Action, DeletePod, PatchNode
from gpuward.model.driver import owner_uid
from gpuward.model.leaving import Leaving, brings_hosts_driver
from gpuward.model.placement import after
from gpuward.model.record import CordonOwner, Record, encode_record
from gpuward.model.states import IN_PROGRESS, MAINTENANCE, State
from gpuward.model.views import NodeView, PodView
from gpuward.model.workloads import HOST_DRIVERS

_BRING: Final = HOST_DRIVERS | names.PLACED_BY
"""The labels by which drivers come and go."""
_VALIDATOR: Final = names.DEPLOY_PREFIX + "sandbox-validator"
HANDED_OVER_WITHIN: Final = 60.0
"""Seconds after which a host has its device plugin back where nobody has taken its driver."""
_THEIRS: Final = (names.INITIALLY_UNSCHEDULABLE, names.DRIVER_MANAGER_CORDON)
"""Notes that say that a cordon is not the operator's."""


def with_cordon(
    patch: PatchNode | None, node: NodeView, pods: Sequence[PodView], leaving: Leaving, now: float
) -> PatchNode | None:
    """Return the patch of a node that nothing uses, with our cordon if its driver goes by that; as long as its device plugin has
    to stop first, what is done for that. A cordon that is there stays as it is: whoever lifts it at this moment has the patch
    decided anew.
    """
    if patch is None or node.state in MAINTENANCE or not any(key in _BRING and key in node.labels for key in patch.labels):
        return patch
    patch = _unless_offered(patch, node, pods, leaving)
    if patch is None or leaving.from_node(_with(node, patch.labels), pods) is None:
        return patch
    if node.unschedulable and patch.unschedulable is None and not _is_to_wait(node):
        return msgspec.structs.replace(patch, expect_unschedulable=True)
    return _cordoned(patch, node, now)


def _is_to_wait(node: NodeView) -> bool:
    """Tell whether our cordon is that of an upgrade, which does not know yet that the driver goes and would lift it."""
    record = node.record
    return node.state in IN_PROGRESS and record is not None and record.cordon is CordonOwner.GPUWARD and not record.changing


def is_handed_over(node: NodeView, pods: Iterable[PodView], namespace: str) -> bool:
    """Tell whether nothing is to offer the GPUs of a host, as its driver is about to go otherwise than by its labels."""
    changing = 0.0 if node.record is None else node.record.changing
    offered = any(key in node.labels for key in names.OFFERED_BY)
    return bool(changing) and not offered and any(
        pod.created <= changing and brings_hosts_driver(pod, namespace) for pod in pods)


def hand_over(delete: DeletePod, node: NodeView, pods: Sequence[PodView], leaving: Leaving, now: float) -> Action | None:
    """Return the deletion of a driver pod of nobody's from a host that nothing uses, in whose place another driver comes; before
    it, the patch by which what offers the host's GPUs goes, with our cordon, and then nothing until that has stopped.
    """
    return stop_offers(node, pods, now, delete.why) if has_to_stop(node, pods, leaving) else delete


def has_to_stop(node: NodeView, pods: Sequence[PodView], leaving: Leaving) -> bool:
    """Tell whether a host's driver goes only once what offers its GPUs has stopped. What no label of ours ends is not waited
    for.
    """
    return leaving.is_offered(pods) and leaving.stops_offers(_with(node, _offers(node)), pods)


def stop_offers(node: NodeView, pods: Sequence[PodView], now: float, why: str) -> PatchNode | None:
    """Return the patch by which what offers a host's GPUs goes, with our cordon unless somebody else's is there; None where it is
    on its way.
    """
    if not (offers := _offers(node)):
        return None
    read = {*offers, *HOST_DRIVERS}
    patch = PatchNode(node.ref, labels=offers, expect_labels={key: node.labels.get(key) for key in sorted(read)},
                      has_annotations=node.has_annotations, known_pods={pod.uid: owner_uid(pod) for pod in pods}, why=why)
    theirs = node.unschedulable and (node.record is None or node.record.cordon is not CordonOwner.GPUWARD)
    return _changing(patch, node, now) if theirs else _cordoned(patch, node, now)


def _changing(patch: PatchNode, node: NodeView, now: float) -> PatchNode:
    """Return a patch with the note that a node's driver is about to go under somebody else's cordon, which stays."""
    record = msgspec.structs.replace(node.record or Record(state=node.state or State.UNKNOWN), changing=now)
    return msgspec.structs.replace(
        patch,
        annotations={**patch.annotations, names.UPGRADE_RECORD: encode_record(record)},
        expect_labels={**patch.expect_labels, names.UPGRADE_STATE: node.labels.get(names.UPGRADE_STATE)},
        expect_annotations={**patch.expect_annotations, names.UPGRADE_RECORD: node.annotations.get(names.UPGRADE_RECORD)},
        expect_unschedulable=True,
    )


def without_note(patch: PatchNode | None, node: NodeView) -> PatchNode | None:
    """Return a node's patch, which takes back the note that its driver was about to go under somebody else's cordon."""
    record = node.record
    if record is None or not record.changing or record.cordon is CordonOwner.GPUWARD or (
            patch is not None and names.UPGRADE_RECORD in patch.annotations):
        return patch
    patch = patch or PatchNode(node.ref, has_annotations=node.has_annotations, why="its driver goes no more")
    stored = encode_record(msgspec.structs.replace(record, changing=0.0))
    return msgspec.structs.replace(
        patch, annotations={**patch.annotations, names.UPGRADE_RECORD: stored},
        expect_annotations={**patch.expect_annotations, names.UPGRADE_RECORD: node.annotations.get(names.UPGRADE_RECORD)})


def _cordoned(patch: PatchNode, node: NodeView, now: float) -> PatchNode:
    known = node.record or Record(state=node.state or State.UNKNOWN)
    record = msgspec.structs.replace(known, cordon=CordonOwner.GPUWARD, changing=now)
    notes = {key: None for key in _THEIRS if key in node.annotations}
    read = (names.UPGRADE_RECORD, *notes)
    return msgspec.structs.replace(
        patch,
        annotations={**patch.annotations, **notes, names.UPGRADE_RECORD: encode_record(record)},
        unschedulable=None if node.unschedulable else True,  # that of a driver manager, which was to be lifted
        expect_labels={**patch.expect_labels, names.UPGRADE_STATE: node.labels.get(names.UPGRADE_STATE)},
        expect_annotations={**patch.expect_annotations, **{key: node.annotations.get(key) for key in read}},
        expect_unschedulable=node.unschedulable,
    )


def _unless_offered(patch: PatchNode, node: NodeView, pods: Sequence[PodView], leaving: Leaving) -> PatchNode | None:
    """Return the patch by which a node's driver goes without what offers its GPUs again; while something does, the patch by which
    that goes, and then none until it is gone. What no label of ours ends is not waited for, nor is a driver spared that goes
    already, or has only begun to come.
    """
    under_way = node.state in IN_PROGRESS
    serving = (pod for pod in pods if not pod.deleting and (pod.ready or not under_way))
    if leaving.driver(_with(node, patch.labels), serving) is None:
        return patch
    offers = _offers(node)
    if not leaving.is_offered(pods):
        return without_offers(patch)
    if not leaving.stops_offers(_with(node, offers), pods):
        return patch
    labels = {**offers, **_validated_anew(node, patch)}
    return msgspec.structs.replace(patch, labels=labels, annotations={}, drivers=None) if offers else None


def _validated_anew(node: NodeView, patch: PatchNode) -> dict[str, None]:
    """Return the change by which the validator of a host goes that is for the node's next kind of virtual machines, too: what it
    has said of the kind before would hold no more. It comes again with the next driver.
    """
    return {_VALIDATOR: None} if node.labels.get(_VALIDATOR) == "true" and _VALIDATOR not in patch.labels else {}


def without_offers(patch: PatchNode | None) -> PatchNode | None:
    """Return a patch without the labels by which something comes to offer a node's GPUs; none if nothing is left of it."""
    if patch is None:
        return None
    labels = {key: value for key, value in patch.labels.items() if value is None or key not in names.OFFERED_BY}
    return msgspec.structs.replace(patch, labels=labels) if labels or patch.annotations else None


def _offers(node: NodeView) -> dict[str, None]:
    """Return the change of labels after which nothing of ours offers a node's GPUs."""
    return {key: None for key in names.OFFERED_BY if node.labels.get(key) not in (None, "false")}


def _with(node: NodeView, change: Mapping[str, str | None]) -> NodeView:
    return msgspec.structs.replace(node, labels=after(node.labels, change))
