"""How long a rollout still takes, as far as that is known from nodes that are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gpuward.model.reading import format_time

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """Say how long it takes until every node is done that is going to be; or why nobody knows. Without nodes it says nothing."""

    left: float = 0.0
    """Seconds, counted from `at`."""
    at: float = 0.0
    """When that was worked out, in Unix seconds."""
    nodes: int = 0
    """How many upgrades it is learned from."""
    earlier: bool = False
    """Whether some of these are of earlier rollouts."""
    unknown: str = ""
    """Why it cannot be told; empty where it can."""
    without: int = 0
    """How many nodes are left out, as they are not Ready and nobody knows until when."""
    finish_by: float = 0.0
    """When it should be done, in Unix seconds; 0 where nobody says."""
    not_before: float = 0.0
    """Before when it will not be done, as nodes wait for something that has a known end; 0 where none does."""
    ends: str = ""
    """What it is that ends then, in words, with the time."""
    would_do: int | None = None
    """How many nodes at once would do for that, where it will be late; 0 where no number would, None where nobody can tell."""

    @property
    def finish(self) -> float:
        """Return when it will be done, in Unix seconds."""
        return self.at + self.left

    @property
    def is_silent(self) -> bool:
        """Tell whether there is nothing from which to tell."""
        return not (self.nodes or self.unknown or self._has_passed)

    @property
    def _has_passed(self) -> bool:
        return bool(self.finish_by) and self.finish_by <= self.at

    def __str__(self) -> str:
        return "; ".join(self.parts())

    def parts(self) -> list[str]:
        """Return what people read of it: how much time is left and, where it should be done at some time, whether it will."""
        if self.is_silent:
            return []
        if self.unknown or not self.nodes:
            unknown = [f"time left unknown: {self.unknown}"] if self.unknown else []
            late = [self._too_late()] if self.finish_by and max(self.at, self.not_before) >= self.finish_by else []
            return [*unknown, *([f"not done before {self.ends}"] if self.not_before else []), *late]
        # In earlier rollouts a node may have gone through more than one upgrade.
        what = "upgrade" if self.earlier else "node"
        whence = f"{self.nodes} {what}{'' if self.nodes == 1 else 's'}{', of earlier rollouts too' if self.earlier else ''}"
        many = "1 node that is" if self.without == 1 else f"{self.without} nodes that are"
        away = f", without {many} not Ready" if self.without else ""
        left = f"about {roughly(self.left)} left, from {whence}{away}"
        return [left, self._in_time()] if self.finish_by else [left]

    def _too_late(self) -> str:
        if self._has_passed:
            return f"finishBy was {roughly(self.at - self.finish_by)} ago"
        return f"that is {roughly(self.not_before - self.finish_by)} after finishBy at least"

    def _in_time(self) -> str:
        slack = self.finish_by - self.finish
        if slack >= 0:
            return f"that is {roughly(slack)} before finishBy"
        would = f"{self.would_do} nodes at once would do" if self.would_do else "no number of nodes at once would do"
        return f"that is {roughly(-slack)} after finishBy{f': {would}' if self.would_do is not None else ''}"

    def as_json(self) -> dict[str, Any] | None:
        """Return it for programs."""
        if self.is_silent:
            return None
        known = not self.unknown and bool(self.nodes)
        return {
            "secondsLeft": round(self.left) if known else None,
            "finishesAt": format_time(self.finish) if known else None, "fromNodes": self.nodes if known else None,
            "fromEarlierRolloutsToo": self.earlier if known else None, "unknownBecause": self.unknown or None,
            "withoutNodes": self.without if known else None,
            "notBefore": format_time(self.not_before) if self.not_before else None,
            "finishBy": format_time(self.finish_by) if self.finish_by else None,
            "slackSeconds": round(self.finish_by - self.finish) if known and self.finish_by else None,
            "nodesAtOnceThatWouldDo": self.would_do,
        }


def roughly(seconds: float) -> str:
    """Return a duration as people estimate one: to the minute, from half an hour on to five minutes, later to half an hour."""
    if seconds <= 1.5 * _MINUTE:
        return "1 min"
    if seconds < 30 * _MINUTE:
        return f"{round(seconds / _MINUTE)} min"
    if seconds < 2 * _HOUR:
        return f"{5 * round(seconds / (5 * _MINUTE))} min"
    if seconds < 48 * _HOUR:
        halves = round(2 * seconds / _HOUR)
        return f"{halves // 2}{'.5' if halves % 2 else ''} h"
    return f"{round(seconds / (24 * _HOUR))} days"


def joined(estimates: Iterable[Estimate | None]) -> Estimate | None:
    """Return the estimate of several rollouts that go on side by side: until the last one is done. None where none goes on, and
    nothing is said where that is so of one of them.
    """
    found = [each for each in estimates if each is not None]
    if not found:
        return None
    if (unknown := next((each for each in found if each.unknown or each.is_silent), None)) is not None:
        return unknown
    last = max(found, key=lambda each: each.left)
    nodes, earlier = sum(each.nodes for each in found), any(each.earlier for each in found)
    return msgspec.structs.replace(last, nodes=nodes, earlier=earlier, without=sum(each.without for each in found))
