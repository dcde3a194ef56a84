"""Nodes from which a label keeps the driver, or an operand that validation needs: what becomes of them tells nothing of it."""

from __future__ import annotations

from typing import Final

from gpuward import names
from gpuward.model.record import Failure
from gpuward.model.states import State
from gpuward.model.views import NodeView
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.scope import unknown_value

NEEDED: Final = (names.DEPLOY_VALIDATOR, names.DEPLOY_TOOLKIT, names.DEPLOY_PLUGIN)
"""Labels by which nodes have the operands that validation needs. People who say `false` may have put others in their place."""
_PAUSED: Final = "paused-for-"
"""What the values have that the driver manager and the MIG manager give to labels of operands while they work."""


def lacking(node: NodeView) -> tuple[str, ...]:
    """Return the labels by which people keep such operands from a node, if by a typing error: DaemonSets select by `true` alone.
    Who pauses one for a while gives it back.
    """
    return tuple(label for label in NEEDED if (value := node.labels.get(label, "true")) != "true" and _PAUSED not in value)


def is_off(node: NodeFacts) -> bool:
    """Tell whether no upgrade of a node could be validated: people keep an operand from it, and no validator gets ready there."""
    return bool(lacking(node.node)) and not any(pod.ready for pod in node.live_validators)


def telling(node: NodeView, failure: Failure | None) -> Failure | None:
    """Return a node's failure if it may tell something of its driver: not where a label of the node is mistyped, by which a
    driver pod comes. What a driver pod failed for before that counts on.
    """
    if failure is None or (failure.state is State.VALIDATION_REQUIRED and lacking(node)):
        return None
    kept_away = failure.state is State.POD_RESTART_REQUIRED and failure.untried and unknown_value(node)
    return None if kept_away else failure
