"""Which disruption budgets cover which pods, remembered from pass to pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpuward.model.budgets import BudgetView
from gpuward.model.selectors import Requirement
from gpuward.model.views import PodView, Ref

MOST_KNOWN: Final = 200_000
"""Pods whose budgets are remembered at once."""


class Coverage:
    """Remember which budgets cover which pods, for as long as the budgets' selectors stay the same."""

    def __init__(self) -> None:
        self._selectors: tuple[tuple[Ref, tuple[Requirement, ...]], ...] = ()
        self._places: dict[str, tuple[PodView, tuple[int, ...]]] = {}

    def refresh(self, budgets: Iterable[BudgetView]) -> None:
        """Forget everything if these budgets cover other pods than those before."""
        selectors = tuple((budget.ref, budget.selector) for budget in budgets)
        if selectors != self._selectors or len(self._places) > MOST_KNOWN:
            self._selectors, self._places = selectors, {}

    def of(self, pod: PodView, budgets: Sequence[BudgetView]) -> tuple[BudgetView, ...]:
        """Return those of its namespace's budgets that cover a pod."""
        known = self._places.get(pod.uid)
        if known is None or known[0] is not pod:
            known = self._places[pod.uid] = (pod, tuple(place for place, budget in enumerate(budgets) if budget.covers(pod)))
        return tuple(budgets[place] for place in known[1])
