"""How long the upgrades took that a node remembers, as far as later ones can be judged by them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpuward.model.history import Ending, PastUpgrade
from gpuward.model.states import State
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.noting import DIGEST


class NodeSamples(msgspec.Struct, frozen=True, gc=False):
    """Hold how long a node's upgrades took that went well, in seconds."""

    own: float = 0.0
    """The one that brought it the driver that it should have; 0 where none did."""
    every: tuple[float, ...] = ()


NO_SAMPLES = NodeSamples()


def samples_on(node: NodeFacts, history: Sequence[PastUpgrade]) -> NodeSamples:
    """Return what a node's history tells, the newest upgrade first."""
    every = tuple(past.seconds for past in history if _went_well(past))
    if not every:
        return NO_SAMPLES
    last = history[0]
    return NodeSamples(last.seconds if _went_well(last) and _is_of_now(node, last) else 0.0, every)


def _went_well(past: PastUpgrade) -> bool:
    return past.ending is Ending.DONE and not past.failures and past.seconds > 0


def _is_of_now(node: NodeFacts, past: PastUpgrade) -> bool:
    """Tell whether the last upgrade of a node brought it the driver that it should have, and no other rollout has begun there."""
    same = past.digest == node.target_digest[:DIGEST] and past.to == node.target_version
    return same and node.in_step and node.state is State.DONE
