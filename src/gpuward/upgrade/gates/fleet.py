"""The fleet as admission sees it: who is out of service, and how many upgrades are under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import IN_PROGRESS
from gpuward.model.views import BudgetView, PodView, Ref
from gpuward.upgrade.facts import NodeFacts

Candidate = NodeFacts


class Fleet(msgspec.Struct, frozen=True):
    """Count the managed nodes. A node is unavailable once, whatever the number of reasons."""

    total: int = 0
    in_progress: frozenset[str] = frozenset()
    unavailable: frozenset[str] = frozenset()
    now: float = 0.0
    failed: frozenset[str] = frozenset()
    """Nodes that failed in this rollout since it was last resumed, and did not succeed since."""
    budgets: Mapping[str, tuple[BudgetView, ...]] = {}
    """Disruption budgets by namespace."""
    claims: Mapping[Ref, int] = {}
    """How many pods of nodes under way still have to go under each budget."""

    def admitted(self, node: NodeFacts) -> Fleet:
        """Return the fleet with one more node under way."""
        name = frozenset({node.node.name})
        return msgspec.structs.replace(
            self,
            in_progress=self.in_progress | name,
            unavailable=self.unavailable | name,
            claims=self.claims if node.restart_only else Counter(self.claims) + self._claims_of([node]),
        )

    def under(self, budgets: Iterable[BudgetView], nodes: Iterable[NodeFacts]) -> Fleet:
        """Return the fleet with disruption budgets, and with what its nodes under way claim of them."""
        by_namespace: dict[str, tuple[BudgetView, ...]] = {}
        for budget in budgets:
            by_namespace[budget.namespace] = (*by_namespace.get(budget.namespace, ()), budget)
        known = msgspec.structs.replace(self, budgets=by_namespace)
        emptied = [node for node in nodes if node.node.name in self.in_progress and not node.restart_only]
        return msgspec.structs.replace(known, claims=known._claims_of(emptied))

    def budgets_of(self, pod: PodView) -> Iterable[BudgetView]:
        """Return the budgets that protect a pod."""
        return (budget for budget in self.budgets.get(pod.namespace, ()) if budget.covers(pod))

    def _claims_of(self, nodes: Iterable[NodeFacts]) -> Counter[Ref]:
        going = (pod for node in nodes for pod in node.leaving.pods if not pod.deleting)
        return Counter(budget.ref for pod in going for budget in self.budgets_of(pod) if not budget.lets_go(pod))


Gate = Callable[[Candidate, Fleet, UpgradePolicy], Hold | None]


def fleet_of(
    before: Iterable[NodeFacts], after: Iterable[NodeFacts], unsettled: frozenset[str], policy: UpgradePolicy, now: float
) -> Fleet:
    """Count the fleet as it is now, or will be after this pass's steps, whichever is worse for each node.

    Writes to different nodes run side by side, and any of them may fail: what a node gives back is given out when its
    write is seen. Nodes in progress are out of service even before they are cordoned. A node whose last write has no known
    outcome may have been admitted by it, from any state, so it counts.
    """
    before = [node for node in before if not node.left]
    nodes = [*before, *(node for node in after if not node.left)]
    in_progress = frozenset(
        node.node.name for node in nodes if node.state in IN_PROGRESS or node.node.name in unsettled
    )
    broken = frozenset(node.node.name for node in nodes if node.unschedulable or not node.node.ready)
    failed = frozenset(node.node.name for node in nodes if _failed(node, policy.rollout.resumed_at))
    return Fleet(len(before), in_progress, in_progress | broken, now, failed)


def _failed(node: NodeFacts, forgiven: float) -> bool:
    failure = node.record.failure
    return failure is not None and failure.at > forgiven and not node.retargeted
