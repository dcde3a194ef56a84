"""Labels by which pod security admission lets privileged pods into the operator's namespace, where the policy asks for them."""

from __future__ import annotations

from gpuward import names
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.model.actions import PatchLabels
from gpuward.model.snapshot import Snapshot, Untaken

LEVELS = {f"{names.POD_SECURITY}{mode}": "privileged" for mode in ("enforce", "audit", "warn")}


def labelled(policy: ClusterPolicy, snapshot: Snapshot) -> list[PatchLabels]:
    """Label the namespace where it is not yet, whatever it says instead, as NVIDIA's operator does.

    Nothing takes the labels back, there neither: without them no operand's pod would be let in again.
    """
    place = snapshot.place
    if not policy.spec.psa.is_enabled or place is None or place.deleting:
        return []
    differing = {key: level for key, level in LEVELS.items() if place.levels.get(key) != level}
    if not differing:
        return []
    return [PatchLabels("Namespace", place.ref, differing, place.version, why="spec.psa.enabled: operands' pods are privileged")]


def not_labelled(policy: ClusterPolicy, snapshot: Snapshot) -> str:
    """Say why the namespace cannot be labelled; empty where it can be, or needs no label."""
    for action in labelled(policy, snapshot):
        found = snapshot.untaken.get(Untaken.key(action.kind, action.ref))
        if found is not None and found.hash == action.ref.uid and found.count >= found.SURE:
            return found.told(action.kind, action.ref.name)
    return ""
