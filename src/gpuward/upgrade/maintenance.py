"""Ask a maintenance operator for leave before a node is emptied, and give it back: on every node, whatever came in between.

A node under way waits by its annotation alone (`maintenance_step`), which says asked or ready. Here it follows from the objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

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
    may_be_emptied,
)
from gpuward.model.plan import Plan
from gpuward.model.record import encode_record
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, Ref
from gpuward.upgrade.decide import Survey
from gpuward.upgrade.undrainable import is_quarantined

_EMPTYING: Final = frozenset({State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED})


def with_maintenances(
    plan: Plan, snapshot: Snapshot, found: Iterable[Survey], now: float, undecided: Set[str] = frozenset()
) -> Plan:
    """Return a plan of all policies that also asks for maintenances, and gives them back. Of `undecided` nodes nobody knows."""
    # Nothing is done about a node in quarantine: others are maintained in its place.
    asking = {judged.before.node.name for each in found
              if each.policy.rollout.interop.maintenance is not MaintenanceMode.OFF for judged in each.nodes
              if not is_quarantined(judged.before, each.policy)}
    known = snapshot.maintenances
    noted = [node for node in snapshot.nodes.values() if names.NODE_MAINTENANCE in node.annotations]
    if not (asking or known or noted):
        return plan
    plan = _told(plan, known, snapshot.unrequested)
    if known is None:
        return plan
    later = {action.node.name for action in plan.actions if isinstance(action, PatchNode)} | snapshot.unsettled | undecided
    wanted = {name: node for name in asking if asks(node := snapshot.nodes[name])}
    nodes = {node.name: node for node in noted} | wanted
    actions: list[Action] = []
    for name, node in sorted(nodes.items()):
        mine = known.get(maintenance_name(name))
        if name in later:
            continue
        action = _next(node, mine, snapshot.namespace, now) if name in wanted else _given_back(node, mine)
        actions += [action] if action is not None else []
    stays = wanted.keys() | later | {node.name for node in noted if may_be_emptied(node.annotations)}
    over = (view for _, view in sorted(known.items()) if view.ours and not view.deleting and view.node not in stays)
    actions += [DeleteObject(KIND, view.ref, why=f"node {view.node} is not maintained any more") for view in over]
    return msgspec.structs.replace(plan, actions=(*plan.actions, *actions)) if actions else plan


def _next(node: NodeView, mine: MaintenanceView | None, namespace: str, now: float) -> Action | None:
    """Return what to do about the maintenance of a node: note that it is asked for, ask, or note that it is ready."""
    noted = node.annotations.get(names.NODE_MAINTENANCE)
    if noted is None:
        return _note(node, Asked.ASKED, "its maintenance is asked for")
    if mine is None:
        body = maintenance_body(node.name, namespace)
        ref = Ref(namespace, maintenance_name(node.name))
        return RequestMaintenance(KIND, ref, body, why=f"node {node.name} is to be emptied")
    if mine.ready and noted != Asked.READY:
        return _begun_anew(_note(node, Asked.READY, "it may be maintained"), node, now)
    return None


def _begun_anew(patch: PatchNode, node: NodeView, now: float) -> PatchNode:
    """Return a patch by which the time begins, too, that the pods have to go, of a node that waited in the state in which they
    are evicted: where it was paused there, or the setting is new.
    """
    if node.record is None or node.state not in _EMPTYING:
        return patch
    record = encode_record(msgspec.structs.replace(node.record, since=now))
    expected = {**patch.expect_annotations, names.UPGRADE_RECORD: node.annotations.get(names.UPGRADE_RECORD)}
    return msgspec.structs.replace(
        patch, annotations={**patch.annotations, names.UPGRADE_RECORD: record}, expect_annotations=expected)


def _given_back(node: NodeView, mine: MaintenanceView | None) -> PatchNode | None:
    """Return the change of a node whose maintenance is over. It has no leave any more from before its object goes: until that has
    gone, the setting or the end of a pause may have it ask anew.
    """
    if mine is None or not mine.ours:
        return _note(node, None, "it is not maintained any more")
    if may_be_emptied(node.annotations):
        return _note(node, Asked.ASKED, "its maintenance is given back")
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


def _told(plan: Plan, known: Mapping[str, MaintenanceView] | None, refusals: Mapping[str, str]) -> Plan:
    """Return a plan whose nodes say how far the maintenances are that they wait for."""
    changed = {}
    for name, status in plan.nodes.items():
        if status.hold is not None and isinstance(what := status.hold.what, MaintenanceAwaited):
            refusal = refusals.get(what.name, "")
            told = "NodeMaintenances cannot be seen" if known is None else how_far(known.get(what.name), refusal)
            hold = msgspec.structs.replace(status.hold, what=msgspec.structs.replace(what, told=told))
            changed[name] = msgspec.structs.replace(status, hold=hold)
    return msgspec.structs.replace(plan, nodes={**plan.nodes, **changed}) if changed else plan
