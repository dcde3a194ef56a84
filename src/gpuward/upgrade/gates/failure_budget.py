"""Gate: the failure budget of the rollout."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import FailureBudget
from gpuward.upgrade.gates.fleet import Candidate, Fleet, some_of


def failure_budget(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node once too many have failed, but for those that failed themselves or that somebody asked for by hand."""
    if not fleet.failed:
        return None
    limit = policy.rollout.failure_budget.of(fleet.total)
    failed_itself = node.record.failure is not None and not node.retargeted
    if len(fleet.failed) <= limit or failed_itself or node.record.forced or node.requested:
        return None
    return Hold(FailureBudget(len(fleet.failed), limit, fleet.total, some_of(fleet.failed)), node.record.since)
