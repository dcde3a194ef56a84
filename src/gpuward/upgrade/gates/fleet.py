"""The fleet as admission sees it: who is out of service, and how many upgrades are under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import IN_PROGRESS
from gpuward.upgrade.facts import NodeFacts

Candidate = NodeFacts


class Fleet(msgspec.Struct, frozen=True):
    """Count the managed nodes. A node is unavailable once, whatever the number of reasons."""

    total: int = 0
    in_progress: frozenset[str] = frozenset()
    unavailable: frozenset[str] = frozenset()
    now: float = 0.0

    def admitted(self, node: NodeFacts) -> Fleet:
        """Return the fleet with one more node under way."""
        name = frozenset({node.node.name})
        return msgspec.structs.replace(self, in_progress=self.in_progress | name, unavailable=self.unavailable | name)


Gate = Callable[[Candidate, Fleet, UpgradePolicy], Hold | None]


def fleet_of(before: Iterable[NodeFacts], after: Iterable[NodeFacts], unsettled: frozenset[str], now: float) -> Fleet:
    """Count the fleet as it is now, or will be after this pass's steps, whichever is worse for each node.

    Writes to different nodes run side by side, and any of them may fail: what a node gives back is given out when its
    write is seen. Nodes in progress are out of service even before they are cordoned. A node whose last write has no known
    outcome may have been admitted by it, from any state, so it counts.
    """
    before = list(before)
    nodes = [*before, *after]
    in_progress = frozenset(
        node.node.name for node in nodes if node.state in IN_PROGRESS or node.node.name in unsettled
    )
    broken = frozenset(node.node.name for node in nodes if node.unschedulable or not node.node.ready)
    return Fleet(len(before), in_progress, in_progress | broken, now)
