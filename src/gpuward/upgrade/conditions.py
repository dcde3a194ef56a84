"""Tell others by the conditions of nodes what the upgrade has them in, and take back what is true no longer, on every node."""

from __future__ import annotations

from collections.abc import Iterable, Set

import msgspec

from gpuward.model.actions import PatchConditions, PatchNode
from gpuward.model.conditions import change
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.upgrade.decide import Survey


def with_conditions(plan: Plan, snapshot: Snapshot, found: Iterable[Survey], undecided: Set[str] = frozenset()) -> Plan:
    """Return a plan of all policies that also has the nodes' conditions follow. Of `undecided` nodes nobody knows.

    A node that is about to be changed gets them afterwards: they say what is written on it by then.
    """
    told = frozenset(judged.before.node.name for each in found if each.policy.rollout.interop.node_conditions
                     for judged in each.nodes)
    # Most nodes of a large fleet are at rest: they are to have none, and have none.
    nodes = [node for node in snapshot.nodes.values() if node.told or (node.name in told and node.upgrade_label != State.DONE)]
    if not nodes:
        return plan
    later = {action.node.name for action in plan.actions if isinstance(action, PatchNode)}
    later |= snapshot.unsettled | undecided
    changes = ((node, change(node, told=node.name in told)) for node in nodes if node.name not in later)
    more = tuple(
        PatchConditions(node.ref, found.put, found.gone, node.told, node.upgrade_label, why="as its upgrade stands")
        for node, found in changes if found)
    return msgspec.structs.replace(plan, actions=(*plan.actions, *more)) if more else plan
