"""Waves that lost all their nodes after these had begun. Later waves wait then: nobody has seen the driver run.

A wave that never had a node lets others pass, as waves are for all rollouts, and not each has nodes in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuward.model.begun_waves import BegunWaves
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import CLOCKS_DIFFER
from gpuward.model.waves import Wave
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.wave_nodes import WaveNode
from gpuward.upgrade.words import runs_all


def labels_of(wave: Wave) -> str:
    """Return the labels that a wave asks for, as one text; empty where it takes any node, and so cannot run out of them."""
    return ",".join(f"{key}={value}" for key, value in sorted(wave.selector.items()))


def known_to_have_begun(policy: UpgradePolicy, late: Sequence[NodeFacts], now: float) -> Mapping[str, float]:
    """Return since when waves have begun with the drivers that nodes are to get; what is said of a time to come counts as now."""
    begun = policy.rollout.begun
    if not late or not runs_all(begun.targets, late):
        return {}
    return {labels: at if at <= now + CLOCKS_DIFFER else now for labels, at in begun.began.items()}


def begun_from_now(
    open_waves: Iterable[tuple[Wave, Sequence[WaveNode]]], known: Mapping[str, float], before: BegunWaves,
    targets: tuple[str, ...],
) -> BegunWaves | None:
    """Return what is to be remembered of the waves that are not over; None where that is what is remembered already."""
    began = dict[str, float]()
    for wave, nodes in open_waves:
        since = known.get(labels := labels_of(wave)) or min((node.began for node in nodes if node.began), default=0.0)
        if labels and since:
            began[labels] = since
    if dict(before.began) == began and (known or not began):
        return None
    return BegunWaves(targets, began) if began else BegunWaves()
