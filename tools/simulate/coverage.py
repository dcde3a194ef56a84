"""What the runs together have to meet: every transition, every reason to wait, every kind of fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuward.model.plan import Reason
from gpuward.model.states import TRANSITIONS
from tools.simulate.faults import KINDS

UNMET: Mapping[str, str] = {
    "reason Undecided": "it would be a bug",
}
"""What no run is to meet, and why."""


def wanted() -> Iterable[str]:
    """Return the name of everything that can be met."""
    yield from (f"fault {kind}" for kind in sorted(KINDS))
    yield from (f"reason {reason}" for reason in Reason)
    for before, afters in TRANSITIONS.items():
        yield from (f"transition {before or 'unknown'} -> {after or 'unknown'}" for after in sorted(afters))


def missing(met: Mapping[str, int]) -> list[str]:
    """Return what was never met, and should have been."""
    return [name for name in wanted() if not met.get(name) and name not in UNMET]
