"""The labels by which waves choose a node. It stays in the wave in which it began.

GPU feature discovery takes its labels away with the driver, and people may edit others meanwhile: later waves would start then,
as if the node had never been in its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuward.model.states import State
from gpuward.model.waves import Wave
from gpuward.upgrade.facts import NodeFacts


def labels_of(node: NodeFacts) -> Mapping[str, str]:
    """Return the labels by which waves choose a node: those that it began with, where it was sent to the driver that it should
    have; what is missing where nothing serves it is what it had when it was sent to another one.
    """
    known, now = dict(each.split("=", 1) for each in node.record.wave_labels if "=" in each), node.node.labels
    if not known:
        return now
    if began(node):
        return {**now, **known}
    return now if node.serves else {**known, **now}


def labels_to_remember(node: NodeFacts, waves: Iterable[Wave]) -> tuple[str, ...]:
    """Return what is remembered of the labels of a node that is admitted."""
    keys, labels = {key for wave in waves for key in wave.selector}, labels_of(node)
    return tuple(f"{key}={labels[key]}" for key in sorted(keys & labels.keys()))


def began(node: NodeFacts) -> float:
    """Return when a node was first sent to the driver that it should have; one that waits for that has yet to begin."""
    record = node.record
    if not (record.target and node.target and record.started) or node.retargeted:
        return 0.0
    if record.failure is not None:
        return record.failure.begun or record.failure.first or record.failure.at or record.started
    waits = node.state is State.UPGRADE_REQUIRED and not (record.forced or record.given_up)
    return 0.0 if waits else record.started
