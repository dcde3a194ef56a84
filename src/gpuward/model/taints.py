"""Whether a node's taints keep a pod away."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_OF_A_START: Final = re.compile(
    r"startup-taint\.cluster-autoscaler\.kubernetes\.io/.*|.*/(agent-not-ready|uninitialized|unregistered)")
"""Taints that a node joins with and that go by themselves: of network and storage agents, cloud providers and autoscalers."""


class Taint(msgspec.Struct, frozen=True, gc=False):
    """Hold one taint of a node."""

    key: str
    value: str = ""
    effect: str = ""

    @property
    def of_a_start(self) -> bool:
        """Tell whether it goes once the node has started, by what set it."""
        return _OF_A_START.fullmatch(self.key) is not None

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """Hold one toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Tell whether it tolerates a taint. One with an operator that is not known here tolerates none."""
        if self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.operator in ("", "Equal") and (self.key, self.value) == (taint.key, taint.value)


def tolerated(taints: Collection[Taint], tolerations: Collection[Toleration]) -> bool:
    """Tell whether a pod with these tolerations may come to a node with these taints."""
    return all(any(one.covers(taint) for one in tolerations) for taint in taints if taint.effect in _REPELLING)
