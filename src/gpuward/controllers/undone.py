"""Node labels that somebody else keeps changing back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome

FIGHT: Final = 6
"""Writes of the same value that are a fight; an upgrade writes none of them that often."""
WINDOW: Final = 600.0
"""Seconds within which they are counted; so long without one, the fight is over."""
TOLD: Final = ("label {label} was written {count} times within {minutes:.0f} minutes: somebody else keeps changing it back "
               "(kubectl get node {node} -o yaml --show-managed-fields says who writes it)")

_Label = tuple[str, str, str | None]
"""A node, a key, and the value that was written; None takes the label away."""


class UndoneLabels:
    """Count writes of the same label. Losing it costs a message that comes later, so it lives in memory only."""

    def __init__(self) -> None:
        self._written: dict[_Label, deque[float]] = {}
        self._told: set[_Label] = set()

    def take(self, outcomes: Sequence[Outcome], now: float) -> Iterator[tuple[str, str]]:
        """Take how patches ended; yield nodes with a message for people, once for each fight."""
        self._written = {label: times for label, times in self._written.items() if now - WINDOW < times[-1] <= now}
        self._told &= self._written.keys()
        for outcome in outcomes:
            if outcome.error or outcome.dropped or outcome.idle or not isinstance(outcome.action, PatchNode):
                continue
            node = outcome.action.node.name
            for key, value in outcome.action.labels.items():
                label = node, key, value
                times = self._written.setdefault(label, deque(maxlen=FIGHT))
                times.append(now)
                if len(times) == FIGHT and times[0] > now - WINDOW and label not in self._told:
                    self._told.add(label)
                    shown = key if value is None else f"{key}={value}"
                    yield node, TOLD.format(label=shown, count=FIGHT, minutes=WINDOW / 60, node=node)
