"""Gate: `maxParallelUpgrades`, the bound on upgrades under way at once."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet, some_of


def max_parallel(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while the rollout already disrupts as many nodes as it may at once."""
    if policy.max_parallel_upgrades and len(fleet.in_progress) >= policy.max_parallel_upgrades:
        args = {
            "used": len(fleet.in_progress),
            "limit": policy.max_parallel_upgrades,
            "nodes": some_of(fleet.in_progress),
            "whose": fleet.whose,
        }
        return Hold(Reason.PARALLEL_LIMIT, args, node.record.since)
    return None
