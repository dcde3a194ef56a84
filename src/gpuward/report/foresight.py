"""Foresee a rollout: the facts once what would be written is there, and in which order the plan for them takes the nodes.

Nothing is played: it is the plan of the pass that comes then, with the place that each waiting node has in the queue. Pods that
leave a node may go to another one that waits, which changes its place; `gpuward rehearse` plays that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpuward.model.driver import driver_daemonsets, revisions_of
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, RevisionView
from gpuward.model.waits import FailureBudgetSpent, Limit, NewDriverFails, OnBudget, OnPod
from gpuward.model.waves import WaveLimit, WaveNotDone
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.report.behind import behind_stuck_waves
from gpuward.report.nodes import NodeReport, node_reports
from gpuward.report.paper import Written
from gpuward.report.when import When, when_of
from gpuward.upgrade.admission import Turn, turn
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.fleet_gates import SETTLING

ON_PAPER = "on-paper"
"""Begins the hash of a revision that is not made yet."""


def afterwards(before: Snapshot, written: Written, changed: Mapping[str, DaemonSetView], now: float) -> Snapshot:
    """Return the facts once what would be written is there, and the DaemonSet controller has seen it.

    `changed` has the DaemonSets that would be changed, by uid, as the API server would keep them: what is played on paper does
    not have what that adds, and takes every one that gpuward has not written itself for changed.
    """
    known = {ds.uid: ds for ds in before.daemonsets}
    daemonsets = tuple(changed.get(ds.uid) or known.get(ds.uid, ds) for ds in written.snapshot.daemonsets)
    after = msgspec.structs.replace(written.snapshot, daemonsets=daemonsets)
    revisions = after.revisions
    for ds in driver_daemonsets(after):
        if ds.uid in changed or ds.uid not in known:
            revisions = _revised(ds, revisions, now)
    return msgspec.structs.replace(after, revisions=revisions)


def _revised(ds: DaemonSetView, revisions: Sequence[RevisionView], now: float) -> tuple[RevisionView, ...]:
    """Return the revisions with that of a DaemonSet's template as its newest: one that was there before is used again."""
    newest = revisions_of(ds.uid, revisions).newest
    number = newest.revision + 1 if newest is not None else 1

    def is_same(each: RevisionView) -> bool:
        return each.owner_uid == ds.uid and (each.config_digest, each.pod_digest) == (ds.config_digest, ds.pod_digest)

    if newest is not None and is_same(newest):
        return tuple(revisions)
    if any(map(is_same, revisions)):
        return tuple(msgspec.structs.replace(each, revision=number) if is_same(each) else each for each in revisions)
    # Who starts is told as of when the first moments of it are over.
    made = RevisionView(ds.namespace, f"{ds.name}-{ON_PAPER}", owner_uid=ds.uid, revision=number, hash=f"{ON_PAPER}-{ds.name}",
                        config_digest=ds.config_digest, pod_digest=ds.pod_digest, created=now - SETTLING)
    return (*revisions, made)


class PlannedNode(msgspec.Struct, frozen=True):
    """Hold what the plan says of one node."""

    node: str
    when: When
    place: int = 0
    """Among the nodes that are under way, start or wait for their turn, from 1; 0 for any other."""
    driver: str = ""
    """The version that it has loaded and, where that is another one, the one that it should have."""
    pool: str = ""
    reason: str = ""
    message: str = ""
    until: float | None = None
    behind: tuple[str, ...] = ()
    """Some of the nodes that it waits for."""
    pod: str = ""
    """The pod that it waits for."""
    budget: str = ""
    """The disruption budget that it waits for."""
    pods: int = 0
    """Pods that have to leave it."""


def planned_nodes(plan: Plan, snapshot: Snapshot, policies: PoliciesInForce) -> list[PlannedNode]:
    """Return every managed node in the order in which nodes have their turn; then those that have none, by name.

    The plan is that of a pass, with the states to which that brings nodes.
    """
    facts = {node.node.name: node for policy in policies.upgrades for node in gather(snapshot, policy)}
    reports = {one.node: one for one in node_reports(plan.as_labelled(snapshot.nodes), snapshot, policies)}
    found = [_planned(name, status, facts.get(name), reports.get(name)) for name, status in plan.nodes.items()]
    behind = behind_stuck_waves(plan, snapshot, policies)
    found = [msgspec.structs.replace(one, when=When.STOPPED) if one.node in behind else one for one in found]
    found.sort(key=lambda one: _order(one, plan.nodes[one.node], facts.get(one.node)))
    places = iter(range(1, len(found) + 1))
    return [msgspec.structs.replace(one, place=next(places)) if _has_turn(one, plan.nodes[one.node]) else one for one in found]


def _has_turn(one: PlannedNode, status: NodeStatus) -> bool:
    return one.when in (When.UNDER_WAY, When.NOW) or (one.when is When.NEXT and status.turn > 0)


def _order(one: PlannedNode, status: NodeStatus, facts: NodeFacts | None) -> tuple[int, float, bool, Turn | tuple[()], str]:
    """Return a sort key; nodes that are tried again after a failure have yet to get a place, and come last of those that wait."""
    began = facts.record.started if facts is not None and one.when is When.UNDER_WAY else float(status.turn or math.inf)
    starts = facts is not None and one.when is When.NOW
    return list(When).index(one.when), began, starts, turn(facts) if facts is not None and starts else (), one.node


def _planned(name: str, status: NodeStatus, facts: NodeFacts | None, report: NodeReport | None) -> PlannedNode:
    when, hold = when_of(status), status.hold
    leaving = len(facts.to_evict.pods) if facts is not None and when is not When.NEVER and not facts.restart_only else 0
    found = PlannedNode(name, when, pods=leaving, driver=report.driver if report else "", pool=report.pool if report else "")
    if hold is None or when is When.NOW:
        return found  # what it waits for once it has started is no matter of its turn
    return msgspec.structs.replace(
        found, reason=str(hold.reason), message=sentence(hold), until=hold.until, behind=_behind(hold),
        pod=str(hold.what.pod) if isinstance(hold.what, OnPod) else "",
        budget=str(hold.what.budget) if isinstance(hold.what, OnBudget) else "")


def _behind(hold: Hold) -> tuple[str, ...]:
    match hold.what:
        case Limit() | FailureBudgetSpent() | WaveNotDone() | WaveLimit():
            return tuple(hold.what.nodes)
        case NewDriverFails():
            return (hold.what.node,)
    return ()


def counted(nodes: Iterable[PlannedNode]) -> dict[When, int]:
    """Count the nodes by when they have their turn."""
    found = dict.fromkeys(When, 0)
    for one in nodes:
        found[one.when] += 1
    return found
