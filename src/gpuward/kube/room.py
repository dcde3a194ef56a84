"""Room in disruption budgets that our own evictions took, until the watch shows it.

The API server takes it before it answers. Of budgets the watch may tell later than of pods: who went by what it showed last would
cordon a node whose pods may not go any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpuward.model.budgets import BudgetView
from gpuward.model.views import PodView

SHOWN: Final = 5.0
"""Seconds after which the watch counts again: the API server may have seen a pod that needed no room."""


class TakenRoom:
    """Remember how many pods went under each version of a budget. Everybody is woken by `touch` when that is forgotten."""

    def __init__(self, touch: Callable[[], None]) -> None:
        self._touch = touch
        self._taken: dict[str, tuple[str, int]] = {}

    def over(self, pod: PodView | None, budgets: Iterable[BudgetView]) -> tuple[BudgetView, ...]:
        """Return the budgets of whose room the eviction of a pod takes some; ask before it is sent."""
        if pod is None or pod.evicted_freely:
            return ()
        return tuple(budget for budget in budgets if budget.covers(pod) and not budget.lets_go(pod))

    def take(self, budgets: Sequence[BudgetView]) -> None:
        """Take it that a pod goes that these budgets protected when it was asked to."""
        for budget in budgets:
            version, count = self._taken.get(budget.uid, ("", 0))
            self._taken[budget.uid] = budget.version, count + 1 if version == budget.version else 1
        if budgets:
            asyncio.get_running_loop().call_later(SHOWN, self._forget, budgets)

    def left(self, budgets: Iterable[BudgetView]) -> tuple[BudgetView, ...]:
        """Return budgets with the room that is left of what the watch showed last."""
        return tuple(map(self._left_of, budgets)) if self._taken else tuple(budgets)

    def _left_of(self, budget: BudgetView) -> BudgetView:
        version, count = self._taken.get(budget.uid, ("", 0))
        if version != budget.version:
            self._taken.pop(budget.uid, None)
            return budget
        return msgspec.structs.replace(budget, allowed=max(0, budget.allowed - count))

    def _forget(self, budgets: Sequence[BudgetView]) -> None:
        for budget in budgets:
            if self._taken.get(budget.uid, ("", 0))[0] == budget.version:
                del self._taken[budget.uid]
                self._touch()
