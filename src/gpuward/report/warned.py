"""Warn of what nobody waits for and people should know of."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.abandoned import WHAT_TO_DO, is_abandoned
from gpuward.model.listing import listed
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView
from gpuward.model.withheld import is_withheld
from gpuward.upgrade.counts import UNSERVED
from gpuward.upgrade.limits import unbounded

_MOST = 3
_CORDON = "until then `kubectl cordon` keeps pods away that would find none"


def warnings(policies: Iterable[UpgradePolicy], plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what is to be said of limits that bound nothing, and of nodes that offer GPUs which no driver pod serves."""
    nodes = [name for name in sorted(plan.nodes) if offers_unserved(name, plan, snapshot)]
    offer = "offers" if len(nodes) == 1 else "offer"
    told = (f"{listed(nodes, _MOST)} {offer} GPUs that no driver pod serves: gpuward explain {one}" for one in nodes[:1])
    return (*unbounded(policies, plan, snapshot), *told)


def offers_unserved(name: str, plan: Plan, snapshot: Snapshot) -> bool:
    """Tell whether a node that gets no driver pod, or none before its turn, offers GPUs: what is put there finds no driver."""
    status, node = plan.nodes.get(name), snapshot.nodes.get(name)
    if status is None or node is None:
        return False
    gets_none = status.hold is not None and status.hold.reason in UNSERVED
    return (gets_none or _waits_without(status, node)) and is_abandoned(node, snapshot)


def told_of_unserved(name: str, plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what is to be said of such a node, nothing of any other."""
    if not offers_unserved(name, plan, snapshot):
        return ()
    waits = _waits_without(plan.nodes[name], snapshot.nodes[name])
    what = f"its upgrade brings the next one; {_CORDON}" if waits else WHAT_TO_DO
    return (f"its driver is still loaded, nobody serves it, and the node offers its GPUs: {what}",)


def _waits_without(status: NodeStatus, node: NodeView) -> bool:
    return status.state is State.UPGRADE_REQUIRED and is_withheld(node)
