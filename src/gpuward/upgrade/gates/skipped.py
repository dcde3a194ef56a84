"""Gate: a node whose owner wants it left alone."""

from __future__ import annotations

from gpuward import names
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.waits import Plain
from gpuward.upgrade.gates.fleet import Candidate, Fleet


def skipped(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node that carries the skip label."""
    if node.node.labels.get(names.UPGRADE_SKIP) == "true":
        return Hold(Plain(Reason.SKIPPED), node.record.since)
    return None
