"""Node labels that somebody else keeps changing back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpuward.execute.contested import FIGHT, WINDOW, Rival
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome

TOLD: Final = "label {label} was written {count} times within {minutes:.0f} minutes: {by} keeps changing it back"
BY: Final = "{manager} (by managedFields, last at {at})"
UNKNOWN: Final = " (kubectl get node {node} -o yaml --show-managed-fields may say who writes it)"

_Label = tuple[str, str, str | None]
"""A node, a key, and the value that was written; None takes the label away."""


class Undone(NamedTuple):
    """Name a label of a node that is changed back."""

    node: str
    key: str
    shown: str
    """The label as it was written."""

    def told(self, rival: Rival | None) -> str:
        """Return the message for people."""
        by = "somebody else" if rival is None else BY.format(manager=rival.manager, at=rival.at or "an unknown time")
        said = TOLD.format(label=self.shown, count=FIGHT, minutes=WINDOW / 60, by=by)
        return said if rival is not None else said + UNKNOWN.format(node=self.node)


class UndoneLabels:
    """Count writes of the same label. Losing it costs a message that comes later, so it lives in memory only."""

    def __init__(self) -> None:
        self._written: dict[_Label, deque[float]] = {}
        self._told: set[_Label] = set()

    def take(self, outcomes: Sequence[Outcome], now: float) -> Iterator[Undone]:
        """Take how patches ended; yield labels that are changed back, once for each fight."""
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
                    yield Undone(node, key, shown)
