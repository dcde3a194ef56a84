"""Gate: a policy that cannot be followed starts nothing new."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import InvalidPolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def invalid_policy(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold every node while the policy that people wrote is invalid; its condition says what is wrong."""
    if policy.admit:
        return None
    return Hold(InvalidPolicy(policy.invalid or "the policy"), node.record.since)
