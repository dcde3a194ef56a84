"""Gate: `maxUnavailable`, the bound on nodes that are out of service for whatever reason."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Limit
from gpuward.upgrade.gates.fleet import Candidate, Fleet, some_of


def max_unavailable(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while taking it out of service would leave too few; one that is out already takes nothing more away.

    One that may be in service though it counts as out is held by the others alone.
    """
    limit = policy.max_unavailable.of(fleet.total)
    is_out = node.node.name in fleet.unavailable
    if len(fleet.unavailable) - is_out < limit or (is_out and not _may_serve(node)):
        return None
    used = fleet.unavailable
    return Hold(Limit(Reason.UNAVAILABLE_LIMIT, len(used), limit, some_of(used), fleet.elsewhere), node.record.since)


def _may_serve(node: Candidate) -> bool:
    if node.node.ready is not True or node.unschedulable:
        return False
    return node.leaving.may_run or (node.driver is not None and node.driver.unheard and not node.driver.deleting)
