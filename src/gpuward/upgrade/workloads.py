"""Nodes that stay for containers or virtual machines while pods use their GPUs, and should be for the other, or nothing."""

from __future__ import annotations

import msgspec

from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST
from gpuward.model.workloads import OperandsKept, WorkloadKeeper, WorkloadKept


def with_workloads(plan: Plan, snapshot: Snapshot, policy: UpgradePolicy) -> Plan:
    """Return a plan in which nodes at rest say what keeps them from what they should be for. What is done about them follows
    from their labels, which have to wait.
    """
    if policy.workloads is None:
        return plan
    keeper = WorkloadKeeper(snapshot, policy.workloads)
    kept = {name: what for name, status in plan.nodes.items() if _may_say(status) and name in snapshot.nodes
            and (what := _kept(name, keeper, snapshot, policy)) is not None}
    return msgspec.structs.replace(plan, nodes={**plan.nodes, **{name: _held(plan.nodes[name], what)
                                                                 for name, what in kept.items()}}) if kept else plan


def _kept(name: str, keeper: WorkloadKeeper, snapshot: Snapshot, policy: UpgradePolicy) -> WorkloadKept | OperandsKept | None:
    node, pods = snapshot.nodes[name], snapshot.pods.get(name, ())
    return keeper.kept(node, pods) or (None if policy.rollout.remove_at_once else keeper.operands(node, pods))


def _may_say(status: NodeStatus) -> bool:
    return status.state in AT_REST and (status.hold is None or status.hold.reason is Reason.PAUSED)


def _held(status: NodeStatus, what: WorkloadKept | OperandsKept) -> NodeStatus:
    return msgspec.structs.replace(status, hold=Hold(what, status.since))
