"""Which rollouts have limits that bound nothing: people who set them should read once what that means."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.scope import concerns


def unbounded(policies: Iterable[UpgradePolicy], plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Say of each rollout whose limits let all of its nodes be out of service at once that they do."""
    found = []
    for policy in policies:
        if not policy.auto_upgrade or policy.unowned or policy.gone or not bounds_nothing(policy, 2):
            continue  # what bounds two nodes bounds any number
        total = sum(concerns(policy, node) for name in plan.nodes if (node := snapshot.nodes.get(name)) is not None)
        if bounds_nothing(policy, total):
            whose = f" of NVIDIADriver {policy.driver}" if policy.driver else ""
            limits = f"maxUnavailable {policy.max_unavailable} and maxParallelUpgrades {policy.max_parallel_upgrades}"
            found.append(f"{limits} let all {total} GPU nodes{whose} be out of service at once")
    return tuple(found)


def bounds_nothing(policy: UpgradePolicy, total: int) -> bool:
    """Tell whether all nodes of a fleet of `total` may be out of service at once; with one node there is no other way."""
    rollout, parallel = policy.rollout, policy.max_parallel_upgrades
    if rollout.domains is not None or rollout.waves or rollout.growth is not None:
        return False
    return total > 1 and policy.max_unavailable.of(total) >= total and (not parallel or parallel >= total)
