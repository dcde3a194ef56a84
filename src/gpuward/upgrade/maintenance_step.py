"""Wait with a node, before anything is evicted from it, until a maintenance operator lets it be maintained."""

from __future__ import annotations

from gpuward import names
from gpuward.model.maintenance import MaintenanceAwaited, MaintenanceMode, maintenance_name, may_be_emptied
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import Wait


def awaited(node: NodeFacts, policy: UpgradePolicy) -> Wait | None:
    """Return that a node waits, where it does. It is cordoned meanwhile: else the maintenance operator would cordon it, and lift
    that when it likes.
    """
    if policy.rollout.interop.maintenance is MaintenanceMode.OFF or may_be_emptied(node.node.annotations):
        return None
    hold = Hold(MaintenanceAwaited(maintenance_name(node.node.name)), node.record.since)
    return Wait(hold, recordon=not node.unschedulable)


def forgotten(node: NodeFacts) -> dict[str, str | None]:
    """Return the removal of what an earlier upgrade noted of its maintenance: this one asks anew."""
    return {names.NODE_MAINTENANCE: None} if names.NODE_MAINTENANCE in node.node.annotations else {}
