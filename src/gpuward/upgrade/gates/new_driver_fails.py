"""Gate: a new driver that has yet to run on its first node, and is in trouble wherever it was tried."""

from __future__ import annotations

from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.waits import NewDriverFails
from gpuward.upgrade.gates.fleet import Candidate, Fleet
from gpuward.upgrade.in_use import in_the_way


def new_driver_fails(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    """Hold a node while the driver that it would get is in trouble on another one and runs on none, until a person lets it go on.

    Nodes that failed themselves, or that somebody asked for by hand, are tried all the same.
    """
    trouble = fleet.troubles.get(node.target)
    if trouble is None or trouble.node == node.node.name:
        return None
    failed_itself = node.record.failure is not None and not node.retargeted
    if failed_itself or node.record.forced or node.requested or (node.in_step and not in_the_way(node)):
        return None
    return Hold(NewDriverFails(trouble.node, trouble.why), trouble.since)
