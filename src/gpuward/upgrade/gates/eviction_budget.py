"""Gate: disruption budgets, which the pods of nodes under way are still using up."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
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
            why = f"disruption budgets {', '.join(str(budget.ref) for budget in budgets)} cover it, and the API allows for one"
            return Hold(Reason.PROTECTED_PODS, {"pod": str(pod.ref), "why": why, "pods": 1}, node.record.since)
        for budget in budgets:
            if budget.lets_go(pod):
                continue
            if budget.never:
                if policy.rollout.kill_at_deadline:
                    continue
                args = {"budget": str(budget.ref), "pod": str(pod.ref), "desired": budget.desired, "expected": budget.expected}
                return Hold(Reason.BUDGET_BLOCKS, args, node.record.since)
            claimed = fleet.claims.get(budget.ref, 0)
            if budget.allowed <= claimed:
                args = {"budget": str(budget.ref), "allowed": budget.allowed, "claimed": claimed, "pod": str(pod.ref)}
                return Hold(Reason.BUDGET_USED_UP, args, node.record.since)
    return None
