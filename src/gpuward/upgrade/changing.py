"""Nodes that are cordoned as their driver goes by a change of their labels, see `labels/cordons.py`: they have no upgrade."""

from __future__ import annotations

from collections.abc import Callable

from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import IN_PROGRESS
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.pausing import given_back, is_ours
from gpuward.upgrade.progress import NodeProgress
from gpuward.upgrade.refused import refused, rests
from gpuward.upgrade.still_offered import awaited, waited_for
from gpuward.upgrade.uncordon import release

Step = Callable[[NodeFacts, UpgradePolicy, float], NodeProgress]


def unless_changing(step: Step) -> Step:
    """Return a step before which such a node waits until its driver has gone, and nothing offers its GPUs for that any more."""
    def told(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
        if not node.record.changing or node.state in IN_PROGRESS or not is_ours(node):
            return step(node, policy, now)
        if node.leaving is not None:
            hold = awaited(waited_for(node, node.leaving), node, policy, node.record.changing, now)
            return NodeProgress(node, hold=hold, retry_at=hold.until)
        if node.refused is not None and rests(node.refused, now):
            hold = refused(node, node.refused, now)
            return NodeProgress(node, hold=hold, retry_at=hold.until)
        if node.node.state is not None and release(node) is not None:
            return step(node, policy, now)
        return given_back(NodeProgress(node), now)
    return told
