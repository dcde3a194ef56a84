"""What people said of a rollout, and whether it is about the driver that a node is to get: a new driver asks again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpuward.model.placement import placement_of
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import CLOCKS_DIFFER
from gpuward.model.waves import Word
from gpuward.upgrade.facts import NodeFacts

replace = msgspec.structs.replace
VERSION: Final = "version:"
"""Begins what names a driver by its version, among the targets of an abort: no revision and no placement has a colon."""


def counts_for(word: Word | None, node: NodeFacts) -> bool:
    """Tell whether what somebody said is about the driver that a node is to get."""
    return word is not None and runs_any(word.targets, node)


def runs_any(targets: Iterable[str], node: NodeFacts) -> bool:
    """Tell whether a node is to get one of these drivers."""
    return bool(node.target) and any(node.runs(target) for target in targets)


def runs_all(targets: Iterable[str], nodes: Iterable[NodeFacts]) -> bool:
    """Tell whether each of these nodes is to get one of these drivers."""
    targets = tuple(targets)
    return all(runs_any(targets, node) for node in nodes)


def behind(nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes that are to get a driver which is not loaded and validated there yet."""
    return [node for node in nodes if node.target and not node.removing and not node.up_to_date]


def is_about(word: Word | None, nodes: Iterable[NodeFacts]) -> bool:
    """Tell whether what somebody said is about the drivers of all these nodes."""
    return word is not None and all(counts_for(word, node) for node in nodes)


def believed(policy: UpgradePolicy, now: float) -> UpgradePolicy:
    """Return the policy without what people say from a time to come: it would forgive what has yet to fail, and approve of what
    nobody has seen. Whoever aborts is taken at their word.
    """
    rollout = policy.rollout
    latest = max(rollout.resumed_at, *(word.at for word in (rollout.approved, rollout.promoted) if word is not None), 0.0)
    if latest <= now + CLOCKS_DIFFER:
        return policy
    approved, promoted = (word if word is not None and word.at <= now + CLOCKS_DIFFER else None
                          for word in (rollout.approved, rollout.promoted))
    resumed = rollout.resumed_at if rollout.resumed_at <= now + CLOCKS_DIFFER else 0.0
    return replace(policy, rollout=replace(rollout, resumed_at=resumed, approved=approved, promoted=promoted))


def aborted(node: NodeFacts, policy: UpgradePolicy) -> Word | None:
    """Return that the rollout of a node's driver was aborted, if it was, and was not resumed since."""
    return rollout_aborted([node], policy)


def rollout_aborted(nodes: Iterable[NodeFacts], policy: UpgradePolicy) -> Word | None:
    """Return that the rollout of the drivers of all these nodes was aborted, if it was, and was not resumed since."""
    word = policy.rollout.aborted
    if word is None or word.at <= policy.rollout.resumed_at:
        return None
    return word if all(counts_for(word, node) or _names_its_version(word, node) for node in nodes) else None


def is_placed_anew(node: NodeFacts) -> bool:
    """Tell whether another DaemonSet of the same policy is for a node, as after a change of its kernel or operating system."""
    return node.moving is not None and not node.removing and node.moving.owner == placement_of(node.node.labels).owner


def versions_named(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    """Return the drivers that nodes are to get by their versions, which are the same for every kernel."""
    return tuple(sorted({VERSION + found for node in nodes if (found := node.next_target.version or node.target_version)}))


def names_versions(word: Word) -> bool:
    """Tell whether a word names drivers by their versions: an abort by an older gpuward does not."""
    return any(target.startswith(VERSION) for target in word.targets)


def _names_its_version(word: Word, node: NodeFacts) -> bool:
    """Tell whether a word names the version that another DaemonSet has for a node, of whose revisions it cannot know. One of
    which nothing is known yet may have it.
    """
    if not is_placed_anew(node):
        return False
    version = node.next_target.version
    return VERSION + version in word.targets if version else names_versions(word)
