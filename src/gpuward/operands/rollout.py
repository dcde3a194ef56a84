"""What the condition `DriverUpgrade` of a policy says of the fleet: one reason, and who is held by what."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from gpuward.model.plan import Plan, Reason
from gpuward.model.states import IN_PROGRESS, State, parse_state

CONDITION = "DriverUpgrade"
MOST_NODES = 3
"""Nodes named for each reason."""
_COMMON = frozenset({Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.FAILURE_BUDGET, Reason.PAUSED, Reason.INVALID_POLICY,
                     Reason.TEMPLATE_SETTLING})
"""Reasons that tell nothing about single nodes, which are only counted."""


class Rollout(msgspec.Struct, frozen=True):
    """Hold the condition: True while every managed node is up to date."""

    status: str
    reason: str
    message: str


def rollout_of(plan: Plan) -> Rollout:
    """Return how the driver upgrade of the fleet stands, the most important reason first."""
    reasons = Counter(hold.reason for hold in plan.holds.values())
    counts = plan.counts
    if not plan.nodes:
        return Rollout("Unknown", "NoNodes", "No node has a driver that is managed here")
    if reasons[Reason.INVALID_POLICY]:
        reason = "InvalidPolicy"
    elif not plan.auto_upgrade:
        reason = "Paused"
    elif reasons[Reason.FAILURE_BUDGET]:
        reason = "FailureBudgetExceeded"
    elif _under_way(plan):
        reason = "Progressing"
    elif counts.pending or counts.done + counts.failed < counts.total:
        waiting = counts.total - counts.done - counts.failed
        reason = "Blocked" if _held_back(plan) >= waiting else "Progressing"
    else:
        reason = "NodesFailed" if counts.failed else "UpToDate"
    return Rollout("True" if reason == "UpToDate" else "False", reason, _message(plan))


def _under_way(plan: Plan) -> bool:
    """Tell whether a node is under way, before or after this plan: between two nodes a rollout is not blocked."""
    return any(status.state in IN_PROGRESS or parse_state(status.label) in IN_PROGRESS for status in plan.nodes.values())


def _held_back(plan: Plan) -> int:
    """Count the nodes that are neither done nor failed and wait for more than a controller of Kubernetes."""
    settled = (State.DONE, State.FAILED)
    return sum(status.state not in settled and status.hold is not None and status.hold.reason is not Reason.TEMPLATE_SETTLING
               for status in plan.nodes.values())


def _message(plan: Plan) -> str:
    counts = plan.counts
    text = (f"{counts.done} of {counts.total} nodes up to date, {counts.in_progress} in progress, {counts.pending} pending, "
            f"{counts.failed} failed")
    held: dict[Reason, list[str]] = defaultdict(list)
    for name, hold in sorted(plan.holds.items()):
        held[hold.reason].append(name)
    parts = [_held(reason, held[reason]) for reason in Reason if reason in held]
    return text + (f"; held: {', '.join(parts)}" if parts else "")


def _held(reason: Reason, nodes: list[str]) -> str:
    if reason in _COMMON:
        return f"{len(nodes)} {reason}"
    more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
    return f"{len(nodes)} {reason} ({', '.join(nodes[:MOST_NODES])}{more})"
