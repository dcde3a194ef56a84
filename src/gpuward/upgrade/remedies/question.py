"""What the candidates for a remedy are looked for with: the node that is held, its hold, and the facts of the decision."""

from __future__ import annotations

import msgspec

from gpuward.model.plan import Hold, Plan
from gpuward.model.views import NodeView, PodView
from gpuward.model.waits import OnPod
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.remedies.fixes import DecisionFacts, Dial, Fix

Candidate = Fix | Dial
SOON = 60.0
"""Seconds in which Kubernetes does by itself what it was asked to: before they are over nobody has to look after it."""


class Question(msgspec.Struct, frozen=True):
    """Hold whose hold it is, and on what facts it was decided."""

    node: NodeFacts
    hold: Hold
    case: DecisionFacts
    plan: Plan
    now: float

    @property
    def view(self) -> NodeView:
        """Return the node."""
        return self.node.node

    def pod(self) -> PodView | None:
        """Return the pod that the hold names."""
        named = self.hold.what.pod if isinstance(self.hold.what, OnPod) else None
        return next((pod for pod in self.case.snapshot.pods.get(self.view.name, ()) if pod.ref == named), None)
