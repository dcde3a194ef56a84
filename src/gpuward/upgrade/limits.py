"""Which rollouts have limits that bound nothing: people who set them should read once what that means."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward.model.domains import DomainMode, is_known
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.upgrade.scope import concerns


def unbounded(policies: Iterable[UpgradePolicy], plan: Plan, snapshot: Snapshot) -> tuple[str, ...]:
    """Say of each rollout whose limits let all of its nodes be out of service at once that they do, and of domains that no node
    is in that they bound nothing.
    """
    found = []
    for policy in policies:
        if not policy.auto_upgrade or policy.unowned or policy.gone or not (
                policy.rollout.domains is not None or bounds_nothing(policy, 2)):
            continue  # what bounds two nodes bounds any number
        there = (node for name in plan.nodes if (node := snapshot.nodes.get(name)) is not None)
        nodes = [node for node in there if concerns(policy, node)]
        whose = f" of NVIDIADriver {policy.driver}" if policy.driver else ""
        undomained = _without_domains(policy, nodes, plan)
        if undomained and policy.rollout.domains is not None:
            key = policy.rollout.domains.key
            found.append(f"none of the {len(nodes)} GPU nodes{whose} has the label {key}, by which domains of the RolloutPolicy "
                         "go: each is a domain of its own")
        total = len(nodes)
        if bounds_nothing(policy, total, undomained=undomained):
            limits = f"maxUnavailable {policy.max_unavailable} and maxParallelUpgrades {policy.max_parallel_upgrades}"
            found.append(f"{limits} let all {total} GPU nodes{whose} be out of service at once")
    return tuple(found)


def _without_domains(policy: UpgradePolicy, nodes: Iterable[NodeView], plan: Plan) -> bool:
    """Tell whether domains go by a label that no node has. GPU feature discovery labels nodes once their drivers run."""
    domains, nodes = policy.rollout.domains, list(nodes)
    if domains is None or not nodes or any(is_known(node, domains.key) for node in nodes):
        return False
    discovered = domains.key.partition("/")[0].endswith("nvidia.com")
    return not discovered or any(plan.nodes[node.name].up_to_date for node in nodes)


def bounds_nothing(policy: UpgradePolicy, total: int, *, undomained: bool = False) -> bool:
    """Tell whether all nodes of a fleet of `total` may be out of service at once; with one node there is no other way."""
    rollout, parallel = policy.rollout, policy.max_parallel_upgrades
    spread = rollout.domains is not None and rollout.domains.mode is DomainMode.SPREAD
    if (rollout.domains is not None and not (undomained and spread)) or rollout.waves or rollout.growth is not None:
        return False
    return total > 1 and policy.max_unavailable.of(total) >= total and (not parallel or parallel >= total)
