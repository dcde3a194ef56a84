"""Count the nodes of a policy: for the metrics, the condition and the first line of `gpuward status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpuward.model.plan import Counts, Hold, NodeStatus
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import AT_REST, IN_PROGRESS, State
from gpuward.upgrade.fleet import Fleet

UNSERVED: Final = frozenset({Reason.NOT_SELECTED, Reason.DRIVER_REFUSED, Reason.WRONG_DRIVER_TYPE, Reason.KERNEL_UNKNOWN})


def count(states: Mapping[State, int], fleet: Fleet, held: Iterable[Hold], policy: UpgradePolicy,
          nodes: Iterable[NodeStatus]) -> Counts:
    """Count for the metrics; nodes that are to be skipped do not wait for anything."""
    skipped = failed = up_to_date = outdated = unserved = 0
    for hold in held:
        if hold.reason is Reason.SKIPPED:
            skipped += 1
    for node in nodes:  # one loop, as a fleet of 10,000 is counted in each pass
        if node.up_to_date:
            up_to_date += 1
        if node.failed:
            failed += 1
        elif node.outdated:
            outdated += 1
        elif node.hold is not None and node.hold.reason in UNSERVED and node.state in AT_REST:
            unserved += 1
    free = policy.max_unavailable.of(fleet.total) - len(fleet.unavailable)
    if policy.max_parallel_upgrades:
        free = min(free, policy.max_parallel_upgrades - len(fleet.in_progress))
    return Counts(
        total=fleet.total,
        in_progress=sum(count for state, count in states.items() if state in IN_PROGRESS),
        done=states.get(State.DONE, 0),
        failed=failed,
        available=max(0, free),
        pending=states.get(State.UPGRADE_REQUIRED, 0) - skipped,
        unavailable=len(fleet.unavailable - fleet.announced),
        up_to_date=up_to_date,
        outdated=outdated,
        unserved=unserved,
    )
