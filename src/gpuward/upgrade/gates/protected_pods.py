"""Gate: GPU pods that nothing in the policy allows to move."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import ProtectedPods
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def protected_pods(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose GPU pods could never be evicted; a drain may be allowed to take them."""
    if node.restart_only or not node.leaving.blocked:
        return None
    blocked = node.draining.blocked if policy.drain.enable else node.leaving.blocked
    if not blocked:
        return None
    return Hold(ProtectedPods(blocked[0].pod.ref, len(blocked), blocked[0].why), node.record.since)
