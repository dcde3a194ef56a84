"""Take back the notice of nodes that are not going to be emptied for now, whatever came in between.

A notice stands while its node waits for its end, for an answer, or for a limit that lets it go on by itself. It goes with the
start of the upgrade, and with everything else: a pause, an abort, a window that shuts, another driver, a node that is gone from
the rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from operator import attrgetter
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import EventText, PatchNode
from gpuward.model.notice import notice_of
from gpuward.model.plan import NodeStatus, Plan
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView
from gpuward.upgrade.decide import Survey
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.notice_gate import MOST_TOLD, current_notice, pods_told

_ITS_OWN: Final = frozenset({Reason.NOTICE_GIVEN, Reason.NOTICE_UNANSWERED})
KEPT: Final = _ITS_OWN | {
    Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.NO_NODE_MAY_START, Reason.DOMAIN_LIMIT, Reason.DOMAIN_BROKEN,
    Reason.WAVE_LIMIT, Reason.GROWTH_LIMIT, Reason.GANG_AWAITED, Reason.BUDGET_USED_UP, Reason.LEDGER_REFUSED,
    Reason.WRITE_REFUSED, Reason.WRITE_UNANSWERED, Reason.UNDECIDED, Reason.NODE_NOT_READY, Reason.TEMPLATE_SETTLING}
"""What a node with a notice may wait for: its answer, limits, its kubelet, what keeps it from being written to, and the moments
after the very driver that it was told of was made once more.
"""


def with_notices_taken_back(
    plan: Plan, snapshot: Snapshot, found: Iterable[Survey], now: float, undecided: Set[str] = frozenset()
) -> Plan:
    """Return a plan of all policies that also takes back each notice that is for nothing. Of `undecided` nodes nobody knows."""
    noticed = sorted((node for node in snapshot.nodes.values() if names.NOTICE in node.annotations), key=attrgetter("name"))
    if not noticed:
        return plan
    known = {judged.before.node.name: (judged, each) for each in found for judged in each.nodes}
    more = tuple(
        _taken_back(node, *known.get(node.name, (None, None))) for node in noticed
        if node.name not in snapshot.unsettled | undecided
        and not _stands(plan.nodes.get(node.name), *known.get(node.name, (None, None)), now=now))
    return msgspec.structs.replace(plan, actions=(*plan.actions, *more)) if more else plan


def _stands(status: NodeStatus | None, judged: NodeDecision | None, found: Survey | None, *, now: float) -> bool:
    """Tell whether nothing is to be done about a notice: it counts, is written anew, or goes with the start of the upgrade."""
    if status is None or judged is None or found is None:
        return False
    if status.before is State.UPGRADE_REQUIRED and status.state in IN_PROGRESS:
        return True
    if status.state is not State.UPGRADE_REQUIRED or found.policy.rollout.notice is None:
        return False
    reason = status.hold.reason if status.hold is not None else None
    if reason in _ITS_OWN or (reason is Reason.TEMPLATE_SETTLING and not judged.path.node.target):
        return True  # which driver it is to get is not known for a moment
    counts = current_notice(judged.path.node, found.fleet, found.policy) is not None
    return counts and (reason in KEPT or (reason is None and judged.waits))


def _taken_back(node: NodeView, judged: NodeDecision | None, found: Survey | None) -> PatchNode:
    notice, text = notice_of(node.annotations), node.annotations[names.NOTICE]
    under_way = node.state in IN_PROGRESS
    told = EventText(f"Notice {notice.id} is taken back: no pod is evicted for it") if notice is not None else None
    events = (told,) if told is not None and not under_way else ()
    pods = pods_told(judged.path.node, found.policy)[:MOST_TOLD] if events and judged is not None and found is not None else ()
    return PatchNode(
        node.ref,
        annotations={names.NOTICE: None},
        expect_annotations={names.NOTICE: text},
        events=events,
        pod_events=tuple((pod.ref, event) for pod in pods for event in events),
        why="its notice is for nothing now",
    )
