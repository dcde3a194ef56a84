"""Gate: `maxUnavailable`, the bound on nodes that are out of service for whatever reason."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet, some_of


def max_unavailable(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while taking it out of service would leave too few; one that is out already takes nothing more away."""
    limit = policy.max_unavailable.of(fleet.total)
    if node.node.name in fleet.unavailable or len(fleet.unavailable) < limit:
        return None
    args = {"used": len(fleet.unavailable), "limit": limit, "nodes": some_of(fleet.unavailable),
            "whose": fleet.whose}
    return Hold(Reason.UNAVAILABLE_LIMIT, args, node.record.since)
