"""Waves that lost all their nodes after these had begun. Later waves wait then: nobody has seen the driver run.

A wave that never had a node lets others pass, as waves are for all rollouts, and not each has nodes in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuward.model.begun_waves import BegunWaves
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import CLOCKS_DIFFER
from gpuward.model.waves import Wave
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.wave_nodes import WaveNode
from gpuward.upgrade.words import runs_any


def labels_of(wave: Wave) -> str:
    """Return the labels that a wave asks for, as one text; empty where it takes any node, and so cannot run out of them."""
    return ",".join(f"{key}={value}" for key, value in sorted(wave.selector.items()))


def keys_of(waves: Sequence[Wave]) -> tuple[str, ...]:
    """Return by what each wave is known: its labels, and which one it is of several with the same ones."""
    seen, keys = Counter[str](), list[str]()
    for labels in map(labels_of, waves):
        seen[labels] += 1
        keys.append(labels if not labels or seen[labels] == 1 else f"{labels}#{seen[labels]}")
    return tuple(keys)


def known_to_have_begun(policy: UpgradePolicy, late: Sequence[NodeFacts], now: float) -> BegunWaves:
    """Return what is known of waves that have begun with a driver that nodes are to get; a time to come counts as now.

    Nodes may be to get others beside it: one that starts with another kernel has a precompiled driver of its own.
    """
    begun = policy.rollout.begun
    if not any(runs_any(begun.targets, node) for node in late):
        return BegunWaves()
    began, emptied = ({key: at if at <= now + CLOCKS_DIFFER else now for key, at in each.items()}
                      for each in (begun.began, begun.emptied))
    return BegunWaves(begun.targets, began, emptied)


def begun_from_now(
    open_waves: Iterable[tuple[str, Sequence[WaveNode]]], known: BegunWaves, before: BegunWaves, targets: tuple[str, ...],
    now: float,
) -> BegunWaves | None:
    """Return what is to be remembered of the waves that are not over; None where that is what is remembered already. As long as
    one has no node any more, it is about the drivers that this one had begun with.
    """
    began, emptied = dict[str, float](), dict[str, float]()
    for key, nodes in open_waves:
        since = known.began.get(key) or min((node.began for node in nodes if node.began), default=0.0)
        if key and since:
            began[key] = since
            emptied |= {} if nodes else {key: known.emptied.get(key) or now}
    about = before.targets if emptied else targets
    if (dict(before.began), dict(before.emptied)) == (began, emptied) and (not began or set(about) <= set(before.targets)):
        return None
    return BegunWaves(about, began, emptied) if began else BegunWaves()
