"""Ask a maintenance operator for leave before a node is emptied, and give it back: on every node, whatever came in between.

A node under way waits by its annotation alone (`maintenance_step`), which says asked or ready. Here it follows from the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from gpuward import names
from gpuward.model.actions import Action, DeleteObject, PatchNode, RequestMaintenance
from gpuward.model.maintenance import (
    KIND,
    Asked,
    MaintenanceAwaited,
    MaintenanceMode,
    MaintenanceView,
    asks,
    how_far,
    maintenance_body,
    maintenance_name,
)
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, Ref
from gpuward.upgrade.decide import Survey


def with_maintenances(plan: Plan, snapshot: Snapshot, found: Iterable[Survey], undecided: Set[str] = frozenset()) -> Plan:
    """Return a plan of all policies that also asks for maintenances, and gives them back. Of `undecided` nodes nobody knows."""
    asking = {judged.before.node.name for each in found
              if each.policy.rollout.interop.maintenance is not MaintenanceMode.OFF for judged in each.nodes}
    known = snapshot.maintenances
    noted = [node for node in snapshot.nodes.values() if names.NODE_MAINTENANCE in node.annotations]
    if not (asking or known or noted):
        return plan
    plan = _told(plan, known)
    if known is None:
        return plan
    later = {action.node.name for action in plan.actions if isinstance(action, PatchNode)} | snapshot.unsettled | undecided
    wanted = {name: node for name in asking if asks(node := snapshot.nodes[name])}
    nodes = {node.name: node for node in noted} | wanted
    actions: list[Action] = []
    for name, node in sorted(nodes.items()):
        mine = known.get(maintenance_name(name))
        if name not in later and (action := _next(node, mine, snapshot.namespace, wanted=name in wanted)) is not None:
            actions.append(action)
    stays = wanted.keys() | later
    over = (view for _, view in sorted(known.items()) if view.ours and not view.deleting and view.node not in stays)
    actions += [DeleteObject(KIND, view.ref, why=f"node {view.node} is not maintained any more") for view in over]
    return msgspec.structs.replace(plan, actions=(*plan.actions, *actions)) if actions else plan


def _next(node: NodeView, mine: MaintenanceView | None, namespace: str, *, wanted: bool) -> Action | None:
    """Return what to do about the maintenance of a node: note that it is asked for, ask, note that it is ready, or over."""
    noted = node.annotations.get(names.NODE_MAINTENANCE)
    if not wanted:
        return _note(node, None, "it is not maintained any more") if mine is None else None
    if noted is None:
        return _note(node, Asked.ASKED, "its maintenance is asked for")
    if mine is None:
        body = maintenance_body(node.name, namespace)
        ref = Ref(namespace, maintenance_name(node.name))
        return RequestMaintenance(KIND, ref, body, why=f"node {node.name} is to be emptied")
    if mine.ready and noted != Asked.READY:
        return _note(node, Asked.READY, "it may be maintained")
    return None


def _note(node: NodeView, value: Asked | None, why: str) -> PatchNode:
    return PatchNode(
        node.ref,
        annotations={names.NODE_MAINTENANCE: value and str(value)},
        expect_labels={names.UPGRADE_STATE: node.labels.get(names.UPGRADE_STATE)},
        expect_annotations={names.NODE_MAINTENANCE: node.annotations.get(names.NODE_MAINTENANCE)},
        has_annotations=node.has_annotations,
        why=why,
    )


def _told(plan: Plan, known: Mapping[str, MaintenanceView] | None) -> Plan:
    """Return a plan whose nodes say how far the maintenances are that they wait for."""
    changed = {}
    for name, status in plan.nodes.items():
        if status.hold is not None and isinstance(what := status.hold.what, MaintenanceAwaited):
            told = "NodeMaintenances cannot be seen" if known is None else how_far(known.get(what.name))
            hold = msgspec.structs.replace(status.hold, what=msgspec.structs.replace(what, told=told))
            changed[name] = msgspec.structs.replace(status, hold=hold)
    return msgspec.structs.replace(plan, nodes={**plan.nodes, **changed}) if changed else plan
