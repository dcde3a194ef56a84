"""Whether the operator brings a node's driver."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpuward import names
from gpuward.agents.api import ApiServer

LONGEST_PAUSE: Final = 30.0
"""Seconds between two questions."""


def is_managed(api: ApiServer, namespace: str) -> bool:
    """Ask whether there is a DaemonSet of the operator's for drivers. Raises errors.ApiError, errors.Unreachable."""
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    found = api.list(path, labels=f"{names.COMPONENT_LABEL}={names.DRIVER_COMPONENT}")
    # One of an NVIDIADriver that is gone has the ClusterPolicy for an owner that is no controller.
    owners = [owner for each in found for owner in each["metadata"].get("ownerReferences") or []]
    return any(owner["kind"] in ("ClusterPolicy", "NVIDIADriver") and owner["apiVersion"].startswith("nvidia.com/")
               for owner in owners)


@dataclass(slots=True)
class Managed:
    """Know whether the operator brings the driver: it may begin to at any time, and is asked ever less often."""

    ask: Callable[[], bool]
    monotonic: Callable[[], float]
    remembered: bool = False
    """Whether the last answer was not a fresh one."""
    _found: bool = False
    _next: float = -math.inf
    _pause: float = 1.0

    def known(self) -> bool:
        """Return what was answered last, or ask."""
        self.remembered = not self._found and self.monotonic() < self._next
        return self._found or (not self.remembered and self.now())

    def now(self) -> bool:
        """Ask."""
        self.remembered, self._found = False, self._found or self.ask()
        self._next, self._pause = self.monotonic() + self._pause, min(self._pause * 2, LONGEST_PAUSE)
        return self._found
