"""Gate: disruption budgets, which the pods of nodes under way are still using up."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def eviction_budget(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node whose pods a budget would not let go now: cordoning it would only take away room for their replacements."""
    if node.restart_only:
        return None
    for pod in node.leaving.pods:
        for budget in () if pod.deleting else fleet.budgets_of(pod):
            claimed = fleet.claims.get(budget.ref, 0)
            if budget.allowed <= claimed:
                args = {"budget": str(budget.ref), "allowed": budget.allowed, "claimed": claimed, "pod": str(pod.ref)}
                return Hold(Reason.BUDGET_USED_UP, args, node.record.since)
    return None
