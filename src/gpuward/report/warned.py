"""Warn of what nobody waits for and people should know of."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.abandoned import WHAT_TO_DO, is_abandoned
from gpuward.model.listing import listed
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.counts import UNSERVED
from gpuward.upgrade.limits import unbounded

UNSERVED_GPUS = f"its driver is still loaded, nobody serves it, and the node offers its GPUs: {WHAT_TO_DO}"
_MOST = 3


def warnings(policies: Iterable[UpgradePolicy], plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what is to be said of limits that bound nothing, and of nodes that offer GPUs which no driver pod serves."""
    nodes = [name for name in sorted(plan.nodes) if offers_unserved(name, plan, snapshot)]
    offer = "offers" if len(nodes) == 1 else "offer"
    told = (f"{listed(nodes, _MOST)} {offer} GPUs that no driver pod serves: gpuward explain {one}" for one in nodes[:1])
    return (*unbounded(policies, plan, snapshot), *told)


def offers_unserved(name: str, plan: Plan, snapshot: Snapshot) -> bool:
    """Tell whether a node that gets no driver pod goes on offering GPUs: what is put there finds no driver."""
    status, node = plan.nodes.get(name), snapshot.nodes.get(name)
    gets_none = status is not None and status.hold is not None and status.hold.reason in UNSERVED
    return gets_none and node is not None and is_abandoned(node, snapshot)
