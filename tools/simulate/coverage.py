"""What the runs together have to meet: every transition, every reason to wait, every gate, every kind of fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuward.model.plan import Reason
from gpuward.model.states import TRANSITIONS
from gpuward.upgrade.gates import GATES
from tools.simulate.faults.kinds import KINDS

GATE_OF: Mapping[Reason, str] = {
    Reason.SKIPPED: "skipped",
    Reason.INVALID_POLICY: "invalid_policy",
    Reason.NODE_GONE: "node_gone",
    Reason.NODE_NOT_READY: "not_ready",
    Reason.DRIVER_POD_MISSING: "driver_pod_missing",
    Reason.TWO_DRIVER_PODS: "two_driver_pods",
    Reason.TEMPLATE_SETTLING: "template_settling",
    Reason.HELD_DEVICES: "held_devices",
    Reason.PROTECTED_PODS: "protected_pods",
    Reason.FAILURE_BUDGET: "failure_budget",
    Reason.BUDGET_BLOCKS: "eviction_budget",
    Reason.BUDGET_USED_UP: "eviction_budget",
    Reason.UNAVAILABLE_LIMIT: "max_unavailable",
    Reason.PARALLEL_LIMIT: "max_parallel",
}
"""Which gate holds a waiting node, by the reason that it gives."""

UNMET: Mapping[str, str] = {
    "reason Undecided": "it would be a bug",
}
"""What no run is to meet, and why."""


def wanted() -> list[str]:
    """Return the name of everything that can be met."""
    return [name for name in _everything() if name not in UNMET]


def _everything() -> Iterable[str]:
    yield from (f"fault {kind}" for kind in sorted(KINDS))
    yield from (f"reason {reason}" for reason in Reason)
    yield from (f"gate {gate.__name__}" for gate in GATES)
    for before, afters in TRANSITIONS.items():
        yield from (f"transition {before or 'unknown'} -> {after or 'unknown'}" for after in sorted(afters))


def missing(met: Mapping[str, int]) -> list[str]:
    """Return what was never met, and should have been."""
    return [name for name in wanted() if not met.get(name)]
