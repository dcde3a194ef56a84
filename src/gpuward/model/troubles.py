"""What is wrong with pods that do not get ready."""

from __future__ import annotations

import msgspec


class PodTrouble(msgspec.Struct, frozen=True):
    """Say why a pod does not get ready."""

    waiting: str
    """Why a container waits, or the pod has no node."""
    restarts: int


class DriverNow(msgspec.Struct, frozen=True):
    """Say which driver pod a node has that failed with another one: none without a name."""

    pod: str = ""
    ready: bool = False
    trouble: PodTrouble | None = None
