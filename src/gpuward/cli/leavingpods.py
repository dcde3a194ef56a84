"""Which pods have to leave a node before its driver is replaced, and why one of them cannot go now."""

from __future__ import annotations

import msgspec

from gpuward.cli.ages import age
from gpuward.cli.prospects import SLACK
from gpuward.model.denials import EvictionForbidden
from gpuward.model.explain import obstacle
from gpuward.model.notice import unanswered
from gpuward.model.obstacles import SeveralBudgets
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.views import PodView
from gpuward.upgrade.evictable_pods import EvictablePods
from gpuward.upgrade.facts import NodeFacts

_EMPTYING = UNDISTURBED | {State.UPGRADE_REQUIRED, State.POD_RESTART_REQUIRED}
"""States in which pods still have to leave."""


class LeavingPod(msgspec.Struct, frozen=True):
    """Name a pod that has to leave its node, and why it cannot go now if it cannot."""

    name: str
    owner: str
    priority: int
    why: str = ""


def leaving_pods(
    node: NodeFacts, policy: UpgradePolicy, snapshot: Snapshot, hold: Hold | None = None, now: float = 0.0
) -> tuple[LeavingPod, ...]:
    """Return the pods that have to leave a node, those first that cannot."""
    if node.state not in _EMPTYING or node.restart_only:
        return ()
    drains = policy.drain.enable and (node.state is State.DRAIN_REQUIRED or bool(node.to_evict.blocked))
    evictable: EvictablePods = node.to_drain if drains else node.to_evict
    blocked = [_leaving(held.pod, obstacle(held.why)) for held in evictable.blocked]
    notes, what = node.node.annotations, hold.what if hold is not None else None
    barred = what.namespace if isinstance(what, EvictionForbidden) else ""
    kills = policy.rollout.kill_at_deadline
    others = (_leaving(pod, unanswered(pod, notes) or _obstacle(pod, snapshot, barred, kills, now)) for pod in evictable.pods)
    return (*blocked, *others)


def _leaving(pod: PodView, why: str) -> LeavingPod:
    owner = f"{pod.owner.kind} {pod.owner.name}" if pod.owner else ""
    return LeavingPod(str(pod.ref), owner, pod.priority, why)


def _obstacle(pod: PodView, snapshot: Snapshot, barred: str, kills: bool, now: float) -> str:
    if pod.deleting and (kept := pod.kept(now)):
        return f"it is terminating, and stays until finalizer {', '.join(kept)} is removed by whoever set it"
    if pod.deleting:
        late = 0 < pod.ends < now - SLACK
        return f"it is terminating, {age(now - pod.ends)} after its grace period" if late else "it is terminating"
    if pod.comes_back and pod.owner is not None:
        return f"it tolerates the cordon: {pod.owner.kind} {pod.owner.name} puts it back"
    if barred and pod.namespace == barred:
        return f"the operator has no right to evict pods of namespace {barred}"
    over = [budget for budget in snapshot.budgets if budget.covers(pod)]
    if len(over) > 1 and not kills:
        return obstacle(SeveralBudgets(tuple(budget.ref for budget in over)))
    tight = next((budget for budget in over if budget.allowed <= 0 and not budget.lets_go(pod)), None)
    return f"disruption budget {tight.ref} lets none go now" if tight else ""
