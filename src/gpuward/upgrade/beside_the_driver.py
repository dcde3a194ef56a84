"""What is told of a node that no upgrade is under way on, and whose other operands fail."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward.model.operand_pods import failing
from gpuward.model.reasons import Reason
from gpuward.model.states import AT_REST
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.progress import NodeProgress

_GIVES_WAY: Final = frozenset({Reason.METADATA_BEHIND, Reason.VALIDATOR_STARTING, Reason.VALIDATOR_MISSING})
"""What is told only where no operand fails."""


def with_operands(path: NodeProgress, now: float) -> NodeProgress:
    """Return the path of a node, which says what fails beside its driver where nothing else is to be said of it."""
    node, hold = path.node, path.hold
    if not node.operands or not _is_at_rest(node) or not (hold is None or hold.reason in _GIVES_WAY):
        return path
    found, until = failing(node.operands, now)
    later = path.retry_at if until is None else min(until, path.retry_at or until)
    return msgspec.structs.replace(path, hold=found or hold, retry_at=later)


def _is_at_rest(node: NodeFacts) -> bool:
    """Tell whether the node has its driver, and no upgrade is under way or asked for."""
    unseen = node.replaced and node.older_validators  # one that was there first waited for the driver, as where that came late
    return node.state in AT_REST and node.driver_ready and bool(node.node.ready) and not unseen
