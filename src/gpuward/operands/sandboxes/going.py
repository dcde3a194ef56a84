"""How a DaemonSet goes that brings the drivers of hosts, together with its pods."""

from __future__ import annotations

from typing import Final

from gpuward.labels import cordons
from gpuward.model.actions import Action, DeleteObject
from gpuward.model.leaving import leaving_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView

STOPS_WITHIN: Final = 1800.0
"""Seconds after which what offers the GPUs of a host is waited for no longer: one host keeps no other cordoned for ever."""


def with_pods(delete: DeleteObject, snapshot: Snapshot, now: float) -> list[Action]:
    """Return the deletion of a DaemonSet whose hosts nothing uses; before it, the patches by which what offers their GPUs goes,
    with our cordons, and then nothing until that has stopped, or its time is up. On a host that is not ready nothing stops, and
    nothing comes.
    """
    leaving = leaving_of(snapshot)
    patches: list[Action] = []
    waits = False
    for name in delete.unused:
        node, pods = snapshot.nodes.get(name), snapshot.pods.get(name, ())
        if node is None or not node.ready or not any(pod.is_owned_by(delete.ref.uid) for pod in pods):
            continue
        if _is_overdue(node, now):
            continue
        unknown = name in snapshot.unsettled
        if unknown or cordons.has_to_stop(node, pods, leaving):
            waits = True
            patch = None if unknown else cordons.stop_offers(node, pods, now, delete.why)
            patches += [] if patch is None else [patch]
    return patches if waits else [delete]


def _is_overdue(node: NodeView, now: float) -> bool:
    changing = 0.0 if node.record is None else node.record.changing
    return bool(changing) and now >= changing + STOPS_WITHIN
