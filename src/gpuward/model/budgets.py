"""Disruption budgets, as far as a decision reads them."""

from __future__ import annotations

import msgspec

from gpuward.model.selectors import Requirement, satisfied
from gpuward.model.views import PodView, Ref


class BudgetView(msgspec.Struct, frozen=True):
    """See of a PodDisruptionBudget which pods it covers and how many of them may go now."""

    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    selector: tuple[Requirement, ...] = ()
    allowed: int = 0
    healthy: int = 0
    desired: int = 0
    """How many healthy pods the budget asks for."""
    expected: int = 0
    """How many pods there are under the budget, healthy or not."""
    min_available: str = ""
    """How many pods its spec wants available: a number or a percentage; nothing where it does not say."""
    max_unavailable: str = ""
    failure: str = ""
    """Why Kubernetes cannot work it out, as it says; it lets no pod go as long as that is so."""
    spares_unhealthy: bool = True
    """Whether pods that are not ready are protected while the healthy ones are too few (IfHealthyBudget, the default)."""

    @property
    def ref(self) -> Ref:
        """Return the budget's reference."""
        return Ref(self.namespace, self.name, self.uid)

    def covers(self, pod: PodView) -> bool:
        """Tell whether the budget protects a pod."""
        return pod.namespace == self.namespace and satisfied(self.selector, pod.labels)

    @property
    def never(self) -> bool:
        """Tell whether the budget would let no pod go even if all of them were healthy."""
        return not self.allowed and (bool(self.failure) or 0 < self.expected <= self.desired)

    @property
    def how_to_widen(self) -> str:
        """Say what would let it allow more: of what its spec says, and of more replicas, only what can work."""
        if self.failure:
            return "write minAvailable as a number in it: percentages and maxUnavailable need a controller with a scale"
        more = ", or run more replicas"
        if self.max_unavailable:  # a number stays the same however many there are
            grows = self.max_unavailable.endswith("%") and self.max_unavailable.strip("0%")
            return f"raise its maxUnavailable, now {self.max_unavailable}{more if grows else ''}"
        if self.min_available:
            return f"lower its minAvailable, now {self.min_available}{'' if self.min_available == '100%' else more}"
        return "raise its maxUnavailable, lower its minAvailable or run more replicas"

    def lets_go(self, pod: PodView) -> bool:
        """Tell whether a pod needs none of the budget's room: one that is not ready, as the eviction API sees it."""
        return not pod.ready and (not self.spares_unhealthy or self.healthy >= self.desired > 0)
