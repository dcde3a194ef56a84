"""Nodes that wait until nobody uses their GPUs: from when on pods are evicted all the same, and what a node waits for."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuward.model.reasons import Reason
from gpuward.model.views import Ref


class OpportunisticSettings(msgspec.Struct, frozen=True):
    """Hold how long no GPU pod must have used a node before it starts, and how long it waits for that; in seconds."""

    idle_for: float
    until: float


class IdleAwaited(msgspec.Struct, frozen=True):
    """Wait until no GPU pod has used the node for a while."""

    reason: ClassVar = Reason.IDLE_AWAITED
    idle_for: float
    evicts: float
    """From when on pods are evicted."""
    pod: Ref | None = None
    """One that uses the node; None while none does."""
    pods: int = 0
