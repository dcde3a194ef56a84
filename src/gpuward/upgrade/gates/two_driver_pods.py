"""Gate: a node on which two driver pods stay."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import TwoDriverPods
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def two_driver_pods(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node with several driver pods: which one holds the driver cannot be known from here."""
    if node.driver_pods > 1:
        return Hold(TwoDriverPods(node.driver_pods), node.record.since)
    return None
