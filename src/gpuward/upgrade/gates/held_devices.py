"""Gate: pods that hold the driver though they ask for no GPU."""

from __future__ import annotations

from gpuward.model.obstacles import HoldsDriver
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import HeldDevices
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def held_devices(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose pods would not let the driver go; a drain may be allowed to take them."""
    if node.restart_only:
        return None
    in_the_way = node.draining.blocked if policy.drain.enable else node.leaving.blocked
    for blocked in in_the_way:
        if isinstance(blocked.why, HoldsDriver):
            return Hold(HeldDevices(blocked.pod.ref, blocked.pod.owner, blocked.why.how), node.record.since)
    return None
