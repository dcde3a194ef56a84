"""Write down what is to be remembered of the waves of a rollout, on its ClusterPolicy or NVIDIADriver."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward import names
from gpuward.model.actions import PatchAnnotations
from gpuward.model.analysis_note import encode_analysis
from gpuward.model.begun_waves import encode_begun
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.waves import Waves


def note_waves(snapshot: Snapshot, policy: UpgradePolicy, waves: Waves) -> Iterable[PatchAnnotations]:
    """Yield what writes down which waves have begun, and how their analyses stand."""
    annotations: dict[str, str | None] = {}
    if waves.note is not None:
        annotations[names.ANALYSIS] = encode_analysis(waves.note)
    if waves.begun is not None:
        annotations[names.BEGUN_WAVES] = encode_begun(waves.begun)
    kind, views = ("NVIDIADriver", snapshot.drivers) if policy.driver else ("ClusterPolicy", snapshot.policies)
    found = (view for view in views if not view.deleting and policy.driver in ("", view.name))
    if annotations and (view := next(found, None)) is not None:
        yield PatchAnnotations(kind, view.ref, annotations, why="which waves have begun, and how they do in their analysis")
