"""Gate: pods that hold the driver though they ask for no GPU."""

from __future__ import annotations

from gpuward.model.plan import Hold, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def held_devices(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node, before it is cordoned, whose pods would not let the driver go; a drain may be allowed to take them."""
    if node.restart_only:
        return None
    in_the_way = node.draining.blocked if policy.drain.enable else node.leaving.blocked
    held = next((blocked for blocked in in_the_way if blocked.holds), None)
    if held is None:
        return None
    owner = f"{held.pod.owner.kind} {held.pod.owner.name}" if held.pod.owner else "no owner"
    return Hold(Reason.HELD_DEVICES, {"pod": str(held.pod.ref), "owner": owner, "how": held.holds}, node.record.since)
