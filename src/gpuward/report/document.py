"""The JSON document about a cluster: what `gpuward status -o json` prints, and what the operator's page shows."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from gpuward.model.plan import Plan
from gpuward.model.record import format_time
from gpuward.model.snapshot import Snapshot
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import refusals
from gpuward.report.nodes import NodeReport, group_reports, node_reports
from gpuward.report.operands import OperandReport, moving_nodes, operand_reports
from gpuward.report.takenup import not_taken_up
from gpuward.report.warned import warnings
from gpuward.report.waves import wave_documents


def document(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce, operator: dict[str, Any],
             chosen: Sequence[NodeReport] | None = None, elsewhere: str = "") -> dict[str, Any]:
    """Return the counts, the operands, and for each node state, since, reason code and sentence; of the nodes in `chosen` alone,
    if they are given. `operator` says who leads, and `elsewhere` that the ClusterPolicy is followed in another namespace.
    """
    view, counts = policies.policy.view, plan.counts
    moving = moving_nodes(plan)
    every = node_reports(plan, snapshot, policies)
    nodes = sorted(every if chosen is None else chosen, key=lambda report: report.node)
    return {
        "clusterPolicy": view.name if view else None,
        "problems": [*_problems(policies, elsewhere), *_troubles(plan)],
        "warnings": [*not_taken_up(policies), *warnings(policies, plan, snapshot)],
        "operator": operator,
        "autoUpgrade": plan.auto_upgrade,
        "counts": {
            "total": counts.total, "inProgress": counts.in_progress, "done": counts.done, "failed": counts.failed,
            "pending": counts.pending, "available": counts.available, "unavailable": counts.unavailable,
            "upToDate": counts.up_to_date, "outdated": counts.outdated,
            "removing": counts.removing, "removed": counts.removed,
            "staging": counts.staging, "staged": counts.staged,
        },
        "estimate": plan.estimate.as_json() if plan.estimate is not None else None,
        "groups": [{"group": str(one.group), "nodes": one.nodes, "reasons": dict(one.reasons)}
                   | ({"note": one.note} if one.note else {}) for one in group_reports(every)],
        "waves": wave_documents(plan),
        "operands": [_operand(one, *moving) for one in operand_reports(snapshot, policies)],
        "nodes": [_node(report) | {"upToDate": plan.nodes[report.node].up_to_date} for report in nodes],
    }


def _operand(report: OperandReport, under_way: Set[str], waiting: Set[str]) -> dict[str, Any]:
    stuck = report.stuck
    return {
        "name": report.name, "daemonSets": list(report.daemonsets), "ready": report.ready, "desired": report.desired,
        "waitsFor": report.waits or None, "newTemplateWaits": report.held_up is not None,
        "explainedByUpgrade": bool(report.waits) and report.is_explained_by(under_way, waiting),
        "stuck": {"pod": stuck.pod, "node": stuck.node, "container": stuck.container, "reason": stuck.why} if stuck else None,
    }


def _node(report: NodeReport) -> dict[str, Any]:
    return {
        "name": report.node,
        "state": report.state or None,
        "group": str(report.group),
        "pool": report.pool or None,
        "driver": {"loaded": report.loaded or None, "doubtful": report.doubtful, "wanted": report.wanted or None},
        "since": format_time(report.since) if report.since else None,
        "reason": report.reason or None,
        "message": report.message or None,
        "until": format_time(report.until) if report.until else None,
        "turn": report.turn or None,
        "cordonedBySomebodyElse": report.cordoned,
        "stillCordonedByUpgrade": report.by_upgrade,
    }


def _problems(policies: PoliciesInForce, elsewhere: str) -> list[str]:
    """Return what is wrong with the policies: of a ClusterPolicy that is invalid every field."""
    active, refused = policies.policy, refusals(policies)
    every_field = [str(problem) for problem in active.problems]
    return [*every_field, *(refused[1:] if every_field else refused), *filter(None, [active.upgrades.absent, elsewhere])]


def _troubles(plan: Plan) -> list[str]:
    whose = {name: f"NVIDIADriver {name}" if name else "the ClusterPolicy" for name in plan.troubles}
    return [f"no upgrade under {whose[name]} can be decided: {why}" for name, why in plan.troubles.items()]
