"""Decide what the driver upgrade does now: one pure function from the facts to a plan.

Two questions, two places. `walk` asks of one node: if it may go on, what is its next step? Admission asks of the fleet: which of
the nodes that want to start may start now? Nodes under way go first; what they give back is given out once it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from gpuward import names
from gpuward.model.actions import Action, PatchNode
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan, Reason
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView
from gpuward.upgrade import emptying, finishing, queueing, replacing  # noqa: F401  importing the steps registers them
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.gates import GATES, Fleet
from gpuward.upgrade.gates.fleet import fleet_of
from gpuward.upgrade.gathering import Memory, concerns, gather
from gpuward.upgrade.queueing import admission, turn
from gpuward.upgrade.walk import Path, actions_of, begin, pause, take, walk

_GENTLE = frozenset({State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED, State.DONE, State.FAILED})
"""Where a node may get while upgrades are paused: none of the steps to these disturbs a workload."""


def decide(snapshot: Snapshot, policy: UpgradePolicy, now: float, memory: Memory | None = None) -> Plan:
    """Return what to do now about every managed node, what each waits for and when to look again unasked.

    With a memory, which changes nothing about the plan, facts of nodes that did not change are not gathered again.
    """
    facts = {node.node.name: node for node in gather(snapshot, policy, memory)}
    if policy.auto_upgrade:
        paths = {name: _advance(node, snapshot, policy, now) for name, node in facts.items()}
        fleet = fleet_of(facts.values(), (path.node for path in paths.values()), snapshot.unsettled, policy, now)
        fleet = fleet.under(snapshot.budgets, facts.values())
        paths, fleet = _admit(paths, fleet, snapshot, policy, now)
        strays: tuple[Action, ...] = ()
    else:
        paths = {name: _finish_only(node, snapshot, policy, now) for name, node in facts.items()}
        fleet = fleet_of(facts.values(), (path.node for path in paths.values()), snapshot.unsettled, policy, now)
        strays = _labels_to_drop(snapshot, policy, paths)
    actions = tuple(action for name, path in paths.items() for action in actions_of(path, facts[name]))
    return Plan(
        actions=actions + strays,
        nodes={name: _status(path) for name, path in paths.items()},
        wake_at=min((path.retry_at for path in paths.values() if path.retry_at is not None), default=None),
        counts=_count(paths, fleet, policy),
        auto_upgrade=policy.auto_upgrade,
    )


def _advance(node: NodeFacts, snapshot: Snapshot, policy: UpgradePolicy, now: float) -> Path:
    if node.node.state is None:
        return Path(node, hold=Hold(Reason.UNKNOWN_STATE, {"label": node.node.upgrade_label}))
    if node.node.name in snapshot.unsettled:
        return Path(node)
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


def _admit(
    paths: Mapping[str, Path], fleet: Fleet, snapshot: Snapshot, policy: UpgradePolicy, now: float
) -> tuple[dict[str, Path], Fleet]:
    """Fold over the waiting nodes in order: each that passes every gate changes the fleet for the next one."""
    result = dict(paths)
    place = 0
    waiting = [path.node for path in paths.values() if path.node.state is State.UPGRADE_REQUIRED]
    for node in sorted(waiting, key=turn):
        name = node.node.name
        path = result[name]
        if name in snapshot.unsettled or path.hold is not None:
            continue
        hold = next((held for gate in GATES if (held := gate(node, fleet, policy)) is not None), None)
        if hold is None:
            result[name] = _held_on_error(node, partial(_start, path, policy, now))
            fleet = fleet.admitted(node)
        else:
            place += 1
            result[name] = msgspec.structs.replace(path, hold=hold, turn=place)
    return result, fleet


def _start(path: Path, policy: UpgradePolicy, now: float) -> Path:
    return walk(take(path, admission(path.node), now), policy, now)


def _finish_only(node: NodeFacts, snapshot: Snapshot, policy: UpgradePolicy, now: float) -> Path:
    """While upgrades are off, let a node under way be validated and uncordoned, and disturb nothing."""
    state = node.node.state
    if node.node.name in snapshot.unsettled:
        return Path(node)
    if node.left:
        return _held_on_error(node, lambda: walk(Path(node), policy, now))
    if state not in IN_PROGRESS:
        return Path(node)
    if state in _GENTLE or (state is State.POD_RESTART_REQUIRED and node.driver_ready):
        path = _held_on_error(node, lambda: walk(begin(node, now), policy, now, within=_GENTLE))
        waits = path.hold is None and path.node.state in IN_PROGRESS
        return msgspec.structs.replace(path, hold=Hold(Reason.PAUSED, {}, path.node.record.since)) if waits else path
    return pause(node, Hold(Reason.PAUSED, {}, node.record.since), now)


def _labels_to_drop(snapshot: Snapshot, policy: UpgradePolicy, paths: Mapping[str, Path]) -> tuple[Action, ...]:
    """Remove the state label, as documented, from every node that is not under way; our record of it stays."""
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
        and not (name in paths and paths[name].entered)
    )


def _droppable(node: NodeView) -> bool:
    return names.UPGRADE_STATE in node.labels and node.state is not None and node.state not in IN_PROGRESS


def _status(path: Path) -> NodeStatus:
    state = path.node.state if path.node.node.state is not None else None
    since = path.node.record.since
    return NodeStatus(state, since, path.hold, path.node.node.upgrade_label, path.turn)


def _count(paths: Mapping[str, Path], fleet: Fleet, policy: UpgradePolicy) -> Counts:
    states = [path.node.state for path in paths.values()]
    pending = states.count(State.UPGRADE_REQUIRED)
    free = policy.max_unavailable.of(fleet.total) - len(fleet.unavailable)
    if policy.max_parallel_upgrades:
        free = min(free, policy.max_parallel_upgrades - len(fleet.in_progress))
    return Counts(
        total=fleet.total,
        in_progress=sum(state in IN_PROGRESS for state in states),
        done=states.count(State.DONE),
        failed=states.count(State.FAILED),
        available=max(0, free),
        pending=pending,
        unavailable=len(fleet.unavailable),
    )
