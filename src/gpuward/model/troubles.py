"""What is wrong with pods that do not get ready."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuward.model.views import PodView

_ON_ITS_WAY: Final = frozenset({"", "PodInitializing", "ContainerCreating", "Unschedulable"})
"""What a container that waits says while nothing is wrong."""


class PodTrouble(msgspec.Struct, frozen=True):
    """Say why a pod does not get ready."""

    waiting: str
    """Why a container waits, or the pod has no node."""
    restarts: int

    @property
    def is_more_than_a_start(self) -> bool:
        """Tell whether it says more than that a pod takes its time, or was started again."""
        return self.waiting not in _ON_ITS_WAY


class DriverNow(msgspec.Struct, frozen=True):
    """Say which driver pod a node has that failed with another one: none without a name."""

    pod: str = ""
    ready: bool = False
    trouble: PodTrouble | None = None


def trouble_of(pod: PodView) -> PodTrouble | None:
    """Return what is wrong with a pod that does not get ready, None while nothing seems to be."""
    if pod.ready or pod.deleting:
        return None
    waiting = "" if pod.waiting in _ON_ITS_WAY else pod.waiting
    return PodTrouble(waiting, pod.restarts) if waiting or pod.restarts else None
