"""Pods that come while others are evicted: one that names its node, or stands a cordon, comes again as often as it is evicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuward.agents.drivermanager.steps import Wait
from gpuward.model.views import Ref

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds from the eviction of such pods to the next one; each pause takes twice as long as the one before."""
FEW: Final = 3
"""How often such pods are evicted before that is called a reason: one may have been on its way."""


@dataclass(slots=True)
class Newcomers:
    """Know which pods have come since a wait for such began, by their names without the last part."""

    _there: set[Ref] = field(default_factory=set, init=False)
    """Those that were there when a wait began."""
    _begun: set[Wait] = field(default_factory=set, init=False)
    _next: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict, init=False)
    """When those of a name are evicted again, and how long the pause after that is."""
    _rounds: dict[tuple[str, str], int] = field(default_factory=dict, init=False)

    def due(self, pods: Sequence[Ref], wait: Wait, now: float) -> list[Ref]:
        """Return the pods that may be evicted now. A drain takes others than the eviction before it, which were there, too."""
        if wait not in self._begun:
            self._begun.add(wait)
            self._there.update(pods)
        return [pod for pod in pods if pod in self._there or now >= self._next.get(_stem(pod), (now, 0.0))[0]]

    def evicted(self, pods: Iterable[Ref], now: float) -> None:
        """Note that pods were evicted."""
        for stem in {_stem(pod) for pod in pods if pod not in self._there}:
            _, pause = self._next.get(stem, (now, FIRST_PAUSE))
            self._next[stem] = now + pause, min(2 * pause, LONGEST_PAUSE)
            self._rounds[stem] = self._rounds.get(stem, 0) + 1

    def returning(self, pods: Iterable[Ref]) -> list[str]:
        """Return those of some pods that come again and again, with their namespaces."""
        return [str(pod) for pod in pods if self._rounds.get(_stem(pod), 0) >= FEW]


def _stem(pod: Ref) -> tuple[str, str]:
    return pod.namespace, pod.name.rpartition("-")[0] or pod.name
