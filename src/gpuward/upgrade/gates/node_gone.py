"""Gate: a node that is being deleted."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Plain
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def node_gone(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that is on its way out of the cluster: upgrading it would be for nothing."""
    return Hold(Plain(Reason.NODE_GONE), node.record.since) if node.node.deleting else None
