"""Gate: a DaemonSet whose newest template its controller has not taken up yet."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Plain
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def template_settling(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while it is not known which revision its driver pod would get."""
    return None if node.target else Hold(Plain(Reason.TEMPLATE_SETTLING), node.record.since)
