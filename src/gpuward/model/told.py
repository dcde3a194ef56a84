"""The conditions of nodes by which Kubernetes tells that a node is being drained or maintained (KEP-5683), as they are found.

Any controller may write them. Nothing in a condition says whose it is but its message: ours begin with the operator's name.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAINTENANCE_PLANNED: Final = "MaintenancePlanned"
DRAIN_IN_PROGRESS: Final = "DrainInProgress"
DRAINED: Final = "Drained"
MAINTENANCE_IN_PROGRESS: Final = "MaintenanceInProgress"
TYPES: Final = (MAINTENANCE_PLANNED, DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_IN_PROGRESS)
OURS: Final = "gpuward: driver upgrade"
"""How each message begins that is ours."""
TRUE: Final = "True"


class ToldCondition(msgspec.Struct, frozen=True, gc=False):
    """Hold a condition that is on a node."""

    type: str
    status: str
    since: float = 0.0
    """When its status changed last; 0 where it does not say."""
    message: str = ""

    @property
    def ours(self) -> bool:
        return self.message.startswith(OURS)


class NewCondition(msgspec.Struct, frozen=True):
    """Hold a condition that a node is to have; its status is True."""

    type: str
    reason: str
    message: str
