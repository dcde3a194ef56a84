"""Gate: `maxUnavailable`, the bound on nodes that are out of service for whatever reason."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet, some_of


def max_unavailable(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while taking it out of service would leave too few; one that is out already takes nothing more away.

    One that may be in service though it counts as out is held by the others alone.
    """
    limit = policy.max_unavailable.of(fleet.total)
    name = node.node.name
    is_out = name in fleet.unavailable
    if len(fleet.unavailable - {name}) < limit or (is_out and not _may_serve(node)):
        return None
    args = {"used": len(fleet.unavailable), "limit": limit, "nodes": some_of(fleet.unavailable),
            "whose": fleet.whose}
    return Hold(Reason.UNAVAILABLE_LIMIT, args, node.record.since)


def _may_serve(node: Candidate) -> bool:
    return node.node.ready is True and not node.unschedulable and bool(node.leaving.running(node.node))
