"""How a DaemonSet goes that brings the drivers of hosts, together with its pods."""

from __future__ import annotations

from gpuward.labels import cordons
from gpuward.model.actions import Action, DeleteObject
from gpuward.model.leaving import leaving_of
from gpuward.model.snapshot import Snapshot


def with_pods(delete: DeleteObject, snapshot: Snapshot, now: float) -> list[Action]:
    """Return the deletion of a DaemonSet whose hosts nothing uses; before it, the patches by which what offers their GPUs goes,
    with our cordons, and then nothing until that has stopped. On a host that is not ready nothing stops, and nothing comes.
    """
    leaving = leaving_of(snapshot)
    patches: list[Action] = []
    waits = False
    for name in delete.unused:
        node, pods = snapshot.nodes.get(name), snapshot.pods.get(name, ())
        if node is None or not node.ready or not any(pod.is_owned_by(delete.ref.uid) for pod in pods):
            continue
        unknown = name in snapshot.unsettled
        if unknown or cordons.has_to_stop(node, pods, leaving):
            waits = True
            patch = None if unknown else cordons.stop_offers(node, pods, now, delete.why)
            patches += [] if patch is None else [patch]
    return patches if waits else [delete]
