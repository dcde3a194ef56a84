"""Decide what the driver upgrade does now: one pure function from the facts to a plan.

Two questions, two places. `walk` asks of one node: if it may go on, what is its next step? Admission asks of the fleet: which of
the nodes that want to start may start now? Nodes under way go first; what they give back is given out once it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from gpuward import names
from gpuward.model.actions import Action, PatchNode
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView
from gpuward.upgrade import emptying, finishing, queueing, replacing, resting  # noqa: F401  importing the steps registers them
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.gates import FLEET_GATES, Fleet
from gpuward.upgrade.gates.fleet import fleet_of
from gpuward.upgrade.gathering import concerns
from gpuward.upgrade.judging import Judged, Memory, judge
from gpuward.upgrade.ledger import MOST_GRANTS, grant, may_be_granted, open_grants, withdraw
from gpuward.upgrade.queueing import admission
from gpuward.upgrade.resting import unfinished
from gpuward.upgrade.standing_down import stand_down
from gpuward.upgrade.walk import Path, actions_of, begin, pause, remember, take, walk

_GENTLE = frozenset({State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED, State.DONE, State.FAILED})
"""Where a node may get while upgrades are paused: none of the steps to these disturbs a workload."""

_AT_REST = frozenset({State.UNKNOWN, State.DONE})

Advance = Callable[[NodeFacts, UpgradePolicy, float], Path]


def decide(snapshot: Snapshot, policy: UpgradePolicy, now: float, memory: Memory | None = None) -> Plan:
    """Return what to do now about every managed node, what each waits for and when to look again unasked.

    With a memory, which changes nothing about the plan, nodes that did not change are not thought about again.
    """
    memory = memory or Memory()
    step = _advance if policy.auto_upgrade else _stand_by if policy.absent else _finish_only
    granted = open_grants(snapshot)
    nodes = memory.judge_all(snapshot, policy, now, lambda node: step(node, policy, now), granted)
    fleet = fleet_of((node.standing for node in nodes), snapshot.unsettled | granted, now)
    if policy.auto_upgrade:
        under_way = (node.before for node in nodes if node.standing.in_progress)
        fleet = fleet.under(snapshot.budgets, under_way, memory.coverage)
        admitted = _admit(nodes, fleet, snapshot, policy, now, granted)
        goes_on = bool(admitted.started or admitted.held or fleet.in_progress)
        return _plan(nodes, admitted, policy, grant(snapshot, admitted.wanted, goes_on))
    return _plan(nodes, _Admission(fleet, _withdrawn(nodes, snapshot, granted)), policy, _labels_to_drop(snapshot, policy, nodes))


def _withdrawn(nodes: Iterable[Judged], snapshot: Snapshot, granted: frozenset[str]) -> dict[str, Path]:
    """Return the nodes that were granted and are not going to be started, where nothing that is done about them says so."""
    known = granted - snapshot.unsettled
    return {
        node.before.node.name: withdraw(node.path) for node in nodes
        if node.before.node.name in known and node.quiet and (not node.waits or node.hold is not None)
    } if known else {}


def _advance(node: NodeFacts, policy: UpgradePolicy, now: float) -> Path:
    if node.node.state is None:
        return Path(node, hold=Hold(Reason.UNKNOWN_STATE, {"label": node.node.upgrade_label}))
    path = _held_on_error(node, lambda: walk(begin(node, now), policy, now))
    if path.hold is not None and path.node.state in IN_PROGRESS and not node.node.ready:
        return msgspec.structs.replace(path, hold=Hold(Reason.NODE_NOT_READY, {}, path.node.record.since))
    return path


def _held_on_error(node: NodeFacts, decision: Callable[[], Path]) -> Path:
    """Hold a node about which the decision fails: a bug that one node brings to light must not stop the others."""
    try:
        return decision()
    except Exception as error:  # whatever it is, it is this node's trouble alone, and its reason says so
        return Path(node, hold=Hold(Reason.UNDECIDED, {"error": f"{type(error).__name__}: {error}"}, node.record.since))


class _Admission(msgspec.Struct, frozen=True):
    """Hold which nodes start, and what holds the others that wait, each with its place in the queue."""

    fleet: Fleet
    started: Mapping[str, Path] = {}
    held: Mapping[str, tuple[Hold, int]] = {}
    wanted: Sequence[NodeView] = ()
    """Nodes that may start once they are in the ledger."""


def _admit(
    nodes: Sequence[Judged], fleet: Fleet, snapshot: Snapshot, policy: UpgradePolicy, now: float, granted: frozenset[str]
) -> _Admission:
    """Fold over the waiting nodes in order: each that passes every gate changes the fleet for the next one.

    Where a ledger is kept, a node starts in the pass after the one in which it was granted, whatever the fleet does by then.
    """
    started = _withdrawn(nodes, snapshot, granted)
    held: dict[str, tuple[Hold, int]] = {}
    wanted: list[NodeView] = []
    place = 0
    waiting = [node for node in nodes if node.waits and node.before.node.name not in snapshot.unsettled]
    for judged in sorted(waiting, key=lambda judged: (judged.before.node.name not in granted, judged.turn)):
        node, hold, name = judged.path.node, judged.hold, judged.before.node.name
        if hold is None and name not in granted:
            hold = _held_by_the_fleet(node, fleet, policy)
        if hold is not None:
            place += judged.hold is None
            held[name] = (hold, place if judged.hold is None else 0)
            continue
        if snapshot.grants is None or name in granted:
            started[name] = _held_on_error(node, partial(_start, judged.path, policy, now))
        elif may_be_granted(judged.before.node) and len(wanted) < MOST_GRANTS:
            started[name] = Path(judged.before)
            wanted.append(judged.before.node)
        fleet = fleet.admitted(node)
    return _Admission(fleet, started, held, wanted)


def _held_by_the_fleet(node: NodeFacts, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
    for gate in FLEET_GATES:
        hold = gate(node, fleet, policy)
        if hold is not None:
            return hold
    return None


def _start(path: Path, policy: UpgradePolicy, now: float) -> Path:
    return walk(take(path, admission(path.node), now), policy, now)


def _finish_only(node: NodeFacts, policy: UpgradePolicy, now: float) -> Path:
    """While upgrades are off, let a node under way be validated and uncordoned, and disturb nothing."""
    state = node.node.state
    if node.left:
        return _held_on_error(node, lambda: walk(begin(node, now), policy, now))
    if state not in IN_PROGRESS:
        return msgspec.structs.replace(remember(node), hold=unfinished(node) if state in _AT_REST else None)
    if state in _GENTLE or (state is State.POD_RESTART_REQUIRED and node.driver_ready):
        path = _held_on_error(node, lambda: walk(begin(node, now), policy, now, within=_GENTLE))
        waits = path.hold is None and path.node.state in IN_PROGRESS
        return msgspec.structs.replace(path, hold=Hold(Reason.PAUSED, {}, path.node.record.since)) if waits else path
    return pause(node, Hold(Reason.PAUSED, {}, node.record.since), now)


def _stand_by(node: NodeFacts, policy: UpgradePolicy, now: float) -> Path:
    return _held_on_error(node, lambda: stand_down(node, policy, now))


def _labels_to_drop(snapshot: Snapshot, policy: UpgradePolicy, nodes: Iterable[Judged]) -> tuple[Action, ...]:
    """Remove the state label, as documented, from every node that is not under way; our record of it stays.

    NVIDIADrivers keep their drivers without a ClusterPolicy, so that there is something for the labels to tell.
    """
    if policy.absent and policy.driver:
        return ()
    moved = {node.before.node.name for node in nodes if node.path.entered}
    return tuple(
        PatchNode(
            node.ref,
            labels={names.UPGRADE_STATE: None},
            expect_labels={names.UPGRADE_STATE: node.upgrade_label},
            has_annotations=node.has_annotations,
            why="automatic driver upgrades are off",
        )
        for name, node in sorted(snapshot.nodes.items())
        if _droppable(node) and concerns(policy, node) and name not in snapshot.unsettled
        and name not in moved
    )


def _droppable(node: NodeView) -> bool:
    return names.UPGRADE_STATE in node.labels and node.state is not None and node.state not in IN_PROGRESS


def _plan(nodes: Iterable[Judged], admission: _Admission, policy: UpgradePolicy, more: tuple[Action, ...] = ()) -> Plan:
    """Put together what the nodes come to, one by one and as a fleet."""
    actions: list[Action] = []
    statuses: dict[str, NodeStatus] = {}
    wakes: list[float] = []
    states: Counter[State] = Counter()
    for node in nodes:
        name = node.before.node.name
        path = admission.started.get(name, node.path)
        if (held := admission.held.get(name)) is not None:
            statuses[name] = node.held(*held)
        else:
            statuses[name] = node.shown if path is node.path else judge(node.before, path, policy).shown
        if not node.quiet or path is not node.path:
            actions += actions_of(path, node.before)
        if path.retry_at is not None:
            wakes.append(path.retry_at)
        states[path.node.state] += 1
    return Plan(
        actions=(*actions, *more),
        nodes=statuses,
        wake_at=min(wakes, default=None),
        counts=_count(states, admission, policy, sum(status.up_to_date for status in statuses.values())),
        auto_upgrade=policy.auto_upgrade,
    )


def _count(states: Mapping[State, int], admission: _Admission, policy: UpgradePolicy, up_to_date: int) -> Counts:
    """Count for the metrics; nodes that are to be skipped do not wait for anything."""
    fleet = admission.fleet
    skipped = sum(hold.reason is Reason.SKIPPED for hold, _ in admission.held.values())
    free = policy.max_unavailable.of(fleet.total) - len(fleet.unavailable)
    if policy.max_parallel_upgrades:
        free = min(free, policy.max_parallel_upgrades - len(fleet.in_progress))
    return Counts(
        total=fleet.total,
        in_progress=sum(count for state, count in states.items() if state in IN_PROGRESS),
        done=states.get(State.DONE, 0),
        failed=states.get(State.FAILED, 0),
        available=max(0, free),
        pending=states.get(State.UPGRADE_REQUIRED, 0) - skipped,
        unavailable=len(fleet.unavailable),
        up_to_date=up_to_date,
    )
