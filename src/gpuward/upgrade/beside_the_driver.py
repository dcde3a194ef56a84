"""What is told of a node that no upgrade is under way on, and that is not well beside its driver."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward.model.mig import without_layout
from gpuward.model.operand_pods import failing
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.states import AT_REST
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.progress import NodeProgress

_GIVES_WAY: Final = frozenset({Reason.METADATA_BEHIND, Reason.VALIDATOR_STARTING, Reason.VALIDATOR_MISSING})
"""What is told only where nothing is wrong beside the driver."""


def beside_the_driver(path: NodeProgress, now: float) -> NodeProgress:
    """Return the path of a node, which says what is wrong beside its driver where nothing else is to be said of it: first of its
    MIG layout, for which operands may be kept away or fail.
    """
    node, hold = path.node, path.hold
    if not _is_at_rest(node) or not (hold is None or hold.reason in _GIVES_WAY):
        return path
    layout, first = without_layout(node.node, now)
    if layout is None and first is None and not node.operands:
        return path
    found, until = (Hold(layout, node.node.mig_since), None) if layout is not None else failing(node.operands, now)
    times = [at for at in (first, until, path.retry_at) if at is not None]
    return msgspec.structs.replace(path, hold=found or hold, retry_at=min(times, default=None))


def _is_at_rest(node: NodeFacts) -> bool:
    """Tell whether the node has its driver, and no upgrade is under way or asked for."""
    unseen = node.replaced and node.older_validators  # one that was there first waited for the driver, as where that came late
    return node.state in AT_REST and node.driver_ready and bool(node.node.ready) and not unseen
