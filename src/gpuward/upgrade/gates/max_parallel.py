"""Gate: `maxParallelUpgrades`, the bound on upgrades under way at once."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Limit
from gpuward.upgrade.gates.fleet import Candidate, Fleet, some_of


def max_parallel(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while the rollout already disrupts as many nodes as it may at once."""
    if policy.max_parallel_upgrades and len(fleet.in_progress) >= policy.max_parallel_upgrades:
        used, limit = fleet.in_progress, policy.max_parallel_upgrades
        return Hold(Limit(Reason.PARALLEL_LIMIT, len(used), limit, some_of(used), fleet.elsewhere), node.record.since)
    return None
