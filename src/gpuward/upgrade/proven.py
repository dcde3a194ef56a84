"""When a node was done first with the driver that it was sent to last: whoever approved of that has seen it run there."""

from __future__ import annotations

from gpuward.model.states import State
from gpuward.upgrade.facts import NodeFacts


def first_done(node: NodeFacts) -> float:
    """Return what is remembered of that from here on, when a node is sent to the same driver once more; 0 for another one, and
    while the node has been done with it once at most, as its state says since when.
    """
    if node.retargeted or not node.record.target:
        return 0.0
    return node.record.proven or (node.record.since if node.record.state is State.DONE else 0.0)
