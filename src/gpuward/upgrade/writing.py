"""Write down where a node's path came to: one patch for all of its steps, and the actions after it."""

from __future__ import annotations

from gpuward import names
from gpuward.model.actions import Action, PatchNode
from gpuward.model.record import encode_record
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.workloads import HOST_DRIVERS
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.progress import NodeProgress

_BRING = tuple(sorted(HOST_DRIVERS | names.PLACED_BY))
"""The labels by which drivers come and go: where they change at this moment our cordon has to stay."""
_CORDONS = (names.INITIALLY_UNSCHEDULABLE,)
"""What says whose a cordon is: it is made and lifted as long as that is as it was read."""


def actions_of(path: NodeProgress, before: NodeFacts) -> tuple[Action, ...]:
    """Return the patch that writes where the path came to, if it moved, and then the path's actions."""
    patch = patch_of(path, before)
    return path.actions if patch is None else (patch, *path.actions)


def patch_of(path: NodeProgress, before: NodeFacts) -> PatchNode | None:
    """Return the patch that writes where the path came to, None where that needs none."""
    node = before.node
    turned = path.node.unschedulable != node.unschedulable
    annotations = {key: value for key, value in path.annotations.items() if node.annotations.get(key) != value}
    if not (path.entered or path.adopted or annotations or path.labels or turned):
        return None
    before_label = node.labels.get(names.UPGRADE_STATE)
    label = str(path.node.state) if path.node.state is not State.UNKNOWN else None
    ends = path.node.state is State.DONE and before.state in IN_PROGRESS
    left, kept = bool(path.entered) and label is None, path.node.record
    forgotten = left and not (kept.forced or kept.loaded)
    brought = _BRING if turned and not path.node.unschedulable else ()
    record = {names.UPGRADE_RECORD: None if forgotten else encode_record(kept)}
    return PatchNode(
        node=node.ref,
        labels={**path.labels, **({names.UPGRADE_STATE: label} if path.entered and label != before_label else {})},
        annotations={**annotations, **record},
        unschedulable=path.node.unschedulable if turned else None,
        expect_labels={key: node.labels.get(key) for key in (names.UPGRADE_STATE, *path.labels, *brought)},
        expect_annotations={key: node.annotations.get(key) for key in (names.UPGRADE_RECORD, *(_CORDONS if turned else ()))},
        expect_unschedulable=node.unschedulable,
        has_annotations=node.has_annotations,
        entered=path.entered,
        done_by=path.node.driver.ref if ends and path.node.driver is not None else None,
        events=path.events,
        pod_events=path.pod_events,
        why=f"{before.state or 'unknown'} -> {path.node.state or 'unknown'}",
    )
