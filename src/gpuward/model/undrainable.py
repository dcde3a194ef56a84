"""What becomes of a node whose pods cannot be moved in time, and what a node keeps of that."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from gpuward.model.reasons import Reason


class Behaviour(StrEnum):
    """Say what becomes of a node whose pods cannot be moved."""

    HOLD = "Hold"
    """It waits for as long as the steps may last."""
    SKIP = "Skip"
    """It goes back into service with the driver that it has."""
    QUARANTINE = "Quarantine"
    """It stays cordoned with the driver that it has, and uses no slot."""
    FAIL = "Fail"
    """Its upgrade fails."""


class UndrainableSettings(msgspec.Struct, frozen=True):
    """Hold what becomes of a node, after how many seconds, and how many nodes may be quarantined."""

    behaviour: Behaviour = Behaviour.HOLD
    after: float = 3600.0
    max_quarantined: int = 1


class GivenUp(msgspec.Struct, frozen=True, gc=False):
    """Remember that, when and for what a node was given up with the driver that it has."""

    at: float
    cause: str
    quarantined: bool = False


class Undrainable(msgspec.Struct, frozen=True):
    """Wait, in service, until nothing has to leave the node any more, or somebody has it tried again."""

    reason: ClassVar = Reason.UNDRAINABLE
    cause: str


class Quarantined(msgspec.Struct, frozen=True):
    """Wait, cordoned, until nothing has to leave the node any more, or somebody takes it out of quarantine."""

    reason: ClassVar = Reason.QUARANTINED
    cause: str
