"""Gate: a policy that cannot be followed starts nothing new."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def invalid_policy(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node while the policy that people wrote is invalid; its condition says what is wrong."""
    if policy.admit:
        return None
    return Hold(Reason.INVALID_POLICY, {"what": policy.invalid or "the policy"}, node.record.since)
