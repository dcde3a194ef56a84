"""How far the removal of drivers has come: those that are switched off, and those of an NVIDIADriver that is gone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuward import names
from gpuward.model.driver import is_driver_pod
from gpuward.model.history import history_of
from gpuward.model.placement import Placements
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.upgrade.fleet import Standing
from gpuward.upgrade.scope import is_to_have_driver


def with_removals(plan: Plan, snapshot: Snapshot, policy: UpgradePolicy, standings: Iterable[Standing]) -> Plan:
    """Return a plan that counts the nodes whose driver is to go, and none comes after it, and those that it was taken from."""
    if not plan.nodes or not takes_drivers(policy):
        return plan
    keep = {name for name, hold in plan.holds.items() if hold.reason is Reason.KERNEL_UNKNOWN}
    removing = len(losing((node.name for node in standings if node.in_total and node.name not in keep), snapshot, policy))
    removed = sum(_lost(node, policy) and not _has_driver(node, snapshot)
                  for name, node in snapshot.nodes.items() if name not in plan.nodes) if removing else 0
    return msgspec.structs.replace(plan, counts=msgspec.structs.replace(plan.counts, removing=removing, removed=removed))


def takes_drivers(policy: UpgradePolicy) -> bool:
    """Tell whether drivers go by a policy that may have none after them."""
    return policy.off or (policy.gone and not policy.unseen) or (policy.going and policy.auto_upgrade)


def losing(nodes: Iterable[str], snapshot: Snapshot, policy: UpgradePolicy) -> frozenset[str]:
    """Return which of the nodes of a policy are to have no driver after the one that they have."""
    found = frozenset(nodes) & snapshot.nodes.keys()
    if policy.off or policy.unseen or not (policy.driver or takes_drivers(policy)):
        return found if policy.off else frozenset()
    placements = Placements(snapshot, policy.placing)
    moving = {name: placements.moving(snapshot.nodes[name], snapshot.pods.get(name, ())) for name in found}
    return frozenset(name for name, to in moving.items() if (policy.gone if to is None else not to.owner))


def _lost(node: NodeView, policy: UpgradePolicy) -> bool:
    """Tell whether a node has no driver any more that it had by a policy. Where an NVIDIADriver is gone its label is, too."""
    if policy.off:
        return is_to_have_driver(node)
    if names.DRIVER_OWNER in node.labels or node.record is None:
        return False
    past = history_of(node.annotations.get(names.UPGRADE_HISTORY))
    return bool(past) and past[-1].policy == policy.driver and node.record.target.startswith("/")


def _has_driver(node: NodeView, snapshot: Snapshot) -> bool:
    """Tell whether a node has a driver pod all the same, as that of an NVIDIADriver where the ClusterPolicy's drivers go."""
    return any(is_driver_pod(pod, snapshot.namespace) for pod in snapshot.pods.get(node.name, ()))
