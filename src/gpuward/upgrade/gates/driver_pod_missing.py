"""Gate: a node without a driver pod, or with one that goes."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import OperandPod, Plain
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def driver_pod_missing(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that has no driver pod, or one that goes: it would keep a slot until one turned up, which may be never."""
    if node.driver is None:
        return Hold(Plain(Reason.DRIVER_POD_MISSING), node.record.since)
    return Hold(OperandPod(node.driver.ref, Reason.DRIVER_STOPPING), node.record.since) if node.driver.deleting else None
