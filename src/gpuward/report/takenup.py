"""Whether the operator has taken up what people wrote last: until then all that is told is about what they asked for before."""

from __future__ import annotations

from collections.abc import Iterator

from gpuward.model.views import PolicyView
from gpuward.policy.nvidiadrivers import PoliciesInForce


def not_taken_up(policies: PoliciesInForce) -> tuple[str, ...]:
    """Return what is to be said of policies that were edited after the operator said something of them last."""
    view = policies.policy.view
    own = [("ClusterPolicy", view)] if view is not None else []
    drivers = [("NVIDIADriver", each.view) for each in policies.active if policies.in_force]
    return tuple(told for kind, each in (*own, *drivers) for told in _not_taken_up(kind, each))


def _not_taken_up(kind: str, view: PolicyView) -> Iterator[str]:
    conditions = (view.body.get("status") or {}).get("conditions") or ()
    seen = max((one.get("observedGeneration") or 0 for one in conditions), default=0)
    if 0 < seen < view.generation:  # an operator that never says of which one it speaks says nothing of the newest either
        yield (f"the operator has not taken up the last edit of {kind} {view.name} yet (generation {view.generation}, it speaks "
               f"of {seen}): what is said of nodes is about what was asked for before; if that lasts, its log says why")
