"""Gate: a node that does not answer."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Plain
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def not_ready(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that is not Ready, or does not say: its pods could neither be evicted nor started."""
    return None if node.node.ready else Hold(Plain(Reason.NODE_NOT_READY), node.record.since)
