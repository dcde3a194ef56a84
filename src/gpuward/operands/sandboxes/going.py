"""How a DaemonSet goes that brings the drivers of hosts, together with its pods."""

from __future__ import annotations

from typing import Final

from gpuward.labels import cordons
from gpuward.model.actions import Action, DeleteObject
from gpuward.model.leaving import leaving_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView

STOPS_WITHIN: Final = 45.0
"""Seconds after which what offers the GPUs of a host is waited for no longer: less than `cordons.HANDED_OVER_WITHIN`, after which
hosts that have stopped offer theirs again.
"""


def with_pods(delete: DeleteObject, snapshot: Snapshot, now: float) -> list[Action]:
    """Return the deletion of a DaemonSet whose hosts nothing uses; before it, the patches by which what offers their GPUs goes,
    with our cordons, and then nothing until that has stopped, or its time is up. On a host that is not ready nothing stops, and
    nothing comes; one that may not be patched is not waited for.
    """
    leaving = leaving_of(snapshot)
    patches: list[Action] = []
    waits = False
    for name in delete.unused:
        node, pods = snapshot.nodes.get(name), snapshot.pods.get(name, ())
        if node is None or not node.ready or not any(pod.is_owned_by(delete.ref.uid) for pod in pods):
            continue
        if node.uid in snapshot.refused_writes or _is_overdue(node, now):
            continue
        unknown = name in snapshot.unsettled
        if unknown or cordons.has_to_stop(node, pods, leaving):
            waits = True
            patch = None if unknown else cordons.stop_offers(node, pods, now, delete.why)
            patches += [] if patch is None else [patch]
    return patches if waits else [delete]


def due(snapshot: Snapshot, now: float) -> float | None:
    """Return when the time of the next host is up that has to stop first."""
    ends = (node.record.changing + STOPS_WITHIN for node in snapshot.nodes.values() if node.record is not None)
    return min((end for end in ends if end > now), default=None)


def _is_overdue(node: NodeView, now: float) -> bool:
    changing = 0.0 if node.record is None else node.record.changing
    return bool(changing) and now >= changing + STOPS_WITHIN
