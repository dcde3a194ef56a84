"""Gate: disruption budgets, which the pods of nodes under way are still using up."""

from __future__ import annotations

from gpuward.model.obstacles import SeveralBudgets
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import BudgetBlocks, BudgetUsedUp, ProtectedPods
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def eviction_budget(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node whose pods a budget would not let go now: cordoning it would only take away room for their replacements.

    A budget that is used up is slow: it has room again when pods that went are back. One that would let nobody go even then is
    a matter for people, unless pods are to be killed at the deadline.
    """
    if not fleet.budgets or not node.leaving.pods or node.restart_only:
        return None
    for pod in node.leaving.pods:
        budgets = fleet.budgets_of(pod)
        if len(budgets) > 1 and not policy.rollout.kill_at_deadline:
            several = SeveralBudgets(tuple(budget.ref for budget in budgets))
            return Hold(ProtectedPods(pod.ref, 1, several), node.record.since)
        for budget in budgets:
            if budget.lets_go(pod):
                continue
            if budget.never:
                if policy.rollout.kill_at_deadline:
                    continue
                return Hold(BudgetBlocks(pod.ref, budget.ref, budget.desired, budget.expected), node.record.since)
            claimed = fleet.claims.get(budget.ref, 0)
            if budget.allowed <= claimed:
                return Hold(BudgetUsedUp(pod.ref, budget.ref, budget.allowed, claimed), node.record.since)
    return None
