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
from gpuward.model.actions import Action
from gpuward.model.maintenance import MaintenanceMode
from gpuward.model.plan import Hold, NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView
from gpuward.model.waits import Plain, UnknownState
from gpuward.model.windows import WindowFit
from gpuward.upgrade import admission, done_or_failed, drain, driver_restart, uncordon  # noqa: F401  importing the steps registers them
from gpuward.upgrade.admission import admit
from gpuward.upgrade.approved_plan import what_differs
from gpuward.upgrade.beside_the_driver import beside_the_driver
from gpuward.upgrade.changing import unless_changing
from gpuward.upgrade.counts import count
from gpuward.upgrade.destinations import Fleets, arriving
from gpuward.upgrade.domain_survey import domain_use
from gpuward.upgrade.estimating import estimate, likely_seconds, samples_of
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet, fleet_of, moved_away
from gpuward.upgrade.fleet_gates import just_changed
from gpuward.upgrade.gang_gate import with_parted
from gpuward.upgrade.gang_sets import GangSets, has_a_place
from gpuward.upgrade.gangs import gang_use, gangs_to_remember
from gpuward.upgrade.holding import Holding
from gpuward.upgrade.idle_gate import begins_to_wait, waits_no_longer
from gpuward.upgrade.late_leave import ends_of_windows, put_back
from gpuward.upgrade.ledger import Room, grant, may_be_granted, open_grants, withdraw
from gpuward.upgrade.node_decision import DecisionCache, NodeDecision, held_on_error
from gpuward.upgrade.notice_gate import current_notice, give_notice, held_by_notice, shut_for_notice
from gpuward.upgrade.pausing import finish_only, labels_to_drop
from gpuward.upgrade.pending_driver_pods import delete_outdated, unplaced_if_it_lasts
from gpuward.upgrade.progress import NodeProgress, apply_move, begin, walk
from gpuward.upgrade.quarantine import quarantined, without_quarantined
from gpuward.upgrade.queue_order import queue_order
from gpuward.upgrade.refused import may_fail, not_entered, overdue, refused, rests
from gpuward.upgrade.wave_labels import labels_to_remember
from gpuward.upgrade.wave_notes import note_waves
from gpuward.upgrade.waves import waves_of
from gpuward.upgrade.windows import windows_now, windows_of
from gpuward.upgrade.without_policy import advance_without_policy
from gpuward.upgrade.words import aborted, believed
from gpuward.upgrade.writing import patch_of

_ITS_OWN = frozenset({Reason.WRITE_REFUSED, Reason.UNDECIDED, Reason.STAGING_FAILED, Reason.IDLE_AWAITED, Reason.GANG_SPARED,
                      Reason.NOTICE_UNANSWERED})
"""Reasons for which a node that waits is passed over."""
_NOT_OF_THE_KUBELET = frozenset({Reason.WRITE_REFUSED, Reason.PAUSED, Reason.NO_POLICY})
"""What a node under way waits for whether it is Ready or not."""
_OF_THE_KUBELET = frozenset({
    Reason.DRIVER_POD_MISSING, Reason.DRIVER_STOPPING, Reason.DEVICE_PLUGIN_STOPPING, Reason.DOES_NOT_STOP,
    Reason.DRIVER_STARTING, Reason.DRIVER_FAILING, Reason.DRIVER_IN_USE, Reason.VALIDATOR_MISSING,
    Reason.VALIDATOR_STARTING, Reason.VALIDATOR_REPLACING})
"""What any other node waits for that comes about on a node that is Ready alone."""
replace = msgspec.structs.replace
_Step = Callable[[NodeFacts, UpgradePolicy, float], NodeProgress]


class Survey(msgspec.Struct, frozen=True):
    """Hold the nodes of one policy before any of them is admitted, and how they count."""

    policy: UpgradePolicy
    nodes: Sequence[NodeDecision]
    fleet: Fleet
    granted: frozenset[str]
    holding: Holding


def decide(snapshot: Snapshot, policy: UpgradePolicy, now: float, memory: DecisionCache | None = None) -> Plan:
    """Return what to do now about every managed node, what each waits for and when to look again unasked.

    With a memory, which changes nothing about the plan, nodes that did not change are not thought about again.
    """
    found = survey(snapshot, policy, now, memory)
    return settle(snapshot, found, now, Fleets([(found.policy, found.fleet)]))


def survey(snapshot: Snapshot, policy: UpgradePolicy, now: float, memory: DecisionCache | None = None) -> Survey:
    """Decide about each node of a policy by itself, and count them."""
    memory, policy = memory or DecisionCache(), believed(policy, now)
    advance = _advance if policy.auto_upgrade else advance_without_policy if policy.absent else finish_only
    step = _not_labelled(unless_changing(advance))
    granted = open_grants(snapshot, now)

    def decided(node: NodeFacts) -> NodeProgress:
        return unplaced_if_it_lasts(beside_the_driver(_if_ready(step(node, policy, now), node), now), now)

    nodes = memory.judge_all(snapshot, policy, now, decided, granted)
    takes = likely_seconds(samples_of(nodes)) if policy.rollout.window_fit is WindowFit.P90 else 0.0
    windows = windows_now(policy.rollout.windows, takes, now)
    waves = waves_of((node.wave for node in nodes), (node.before for node in nodes), policy, now, windows.zone,
                     snapshot.measured)
    standings = (*without_quarantined(nodes, policy), *moved_away(snapshot, policy), *arriving(snapshot, policy, granted))
    fleet = fleet_of(standings, snapshot.unsettled | granted, now, windows, waves)
    if own := {place: windows_now(windows_of(wave.windows, policy.rollout.windows), takes, now)
               for place, wave in enumerate(policy.rollout.waves) if wave.windows}:
        fleet = replace(fleet, wave_windows=own)
    if takes:
        fleet = replace(fleet, takes=takes)
    if policy.rollout.interop.maintenance is not MaintenanceMode.OFF and snapshot.maintenances is None:
        fleet = replace(fleet, unasked=True)
    if policy.rollout.aborted is not None:
        fleet = replace(fleet, aborted=any(aborted(node.before, policy) is not None for node in nodes))
    if policy.rollout.approved_plan is not None:
        fleet = replace(fleet, differs=what_differs(nodes, waves.places, policy))
    if policy.auto_upgrade:
        fleet = fleet.under(snapshot.budgets, (node.before for node in nodes if node.standing.in_progress), memory.coverage)
        gangs = gang_use([node.before for node in nodes], snapshot.unsettled | granted, policy, now)
        fleet = replace(fleet, gangs=with_parted(gangs, fleet, policy))
    if policy.auto_upgrade or not (policy.unowned or policy.absent):  # nodes of a rollout that is off share domains with others
        fleet = replace(fleet, domains=domain_use(snapshot, nodes, fleet, policy, granted))
    return Survey(policy, nodes, fleet, granted, memory.holding)


def settle(snapshot: Snapshot, found: Survey, now: float, fleets: Fleets) -> Plan:
    """Admit nodes of a policy, and put its plan together; `fleets` are those of all policies, and change with each admission."""
    policy, nodes, granted = found.policy, found.nodes, found.granted
    if policy.auto_upgrade:
        admitted = _admit(found, fleets, snapshot, now)
        goes_on = bool(admitted.started or admitted.held or found.fleet.in_progress)
        pending = (node.path.node for node in nodes if node.pending)
        waiting = [(facts, just_changed(facts, found.fleet, policy)) for facts in pending if facts.node.name in admitted.held]
        ends = [settling.until for _, settling in waiting if settling is not None]
        settled = (facts for facts, settling in waiting if settling is None)
        more = (*grant(snapshot, admitted.wanted, goes_on, now), *delete_outdated(settled, policy))
        more = (*more, *note_waves(snapshot, policy, found.fleet.waves))
        left = estimate(nodes, admitted.held, found.fleet, policy, now)
        plan = _plan(nodes, admitted, policy, more)
        wakes = [at for at in (plan.wake_at, *ends) if at is not None]
        return replace(plan, estimate=left, wake_at=min(wakes, default=None))
    admitted = _Admission(found.fleet, _withdrawn(nodes, snapshot, granted, now))
    still = (node.before for node in nodes if node.before.node.name not in snapshot.unsettled)
    return _plan(nodes, admitted, policy, (*labels_to_drop(snapshot, policy, nodes), *delete_outdated(still, policy)))


def _withdrawn(
    nodes: Iterable[NodeDecision], snapshot: Snapshot, granted: frozenset[str], now: float
) -> dict[str, Callable[[], NodeProgress]]:
    """Return the nodes that were granted and are not going to be started, where nothing that is done about them says so."""
    known = granted - snapshot.unsettled
    return {
        node.before.node.name: partial(withdraw, node.path) for node in nodes
        if node.before.node.name in known and node.quiet and (not node.waits or node.hold is not None)
        and not rests(node.before.refused, now)
    } if known else {}


def _not_labelled(step: _Step) -> _Step:
    """Return a step that leaves nodes to the labels which may not be labelled, and says why."""
    def told(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
        if not node.barred or node.refused is None:
            return step(node, policy, now)
        return NodeProgress(node, hold=refused(node, node.refused, now))
    return told


def _advance(node: NodeFacts, policy: UpgradePolicy, now: float) -> NodeProgress:
    if node.node.state is None:
        return NodeProgress(node, hold=Hold(UnknownState(node.node.upgrade_label)))
    path = waits_no_longer(walk(begin(node, now), policy, now), policy)
    if node.refused is not None:
        path = _retried(path, node, node.refused, policy, now)
    return path


def _if_ready(path: NodeProgress, node: NodeFacts) -> NodeProgress:
    """Return the path with the one cause of a node that is not Ready: what else it waits for is up to its kubelet."""
    if node.node.ready or path.hold is None:
        return path
    if path.node.state not in IN_PROGRESS:
        of_kubelet, since, until = path.hold.reason in _OF_THE_KUBELET, node.node.turned or path.hold.since, None
    else:
        of_kubelet, since, until = path.hold.reason not in _NOT_OF_THE_KUBELET, path.node.record.since, path.hold.until
    return replace(path, hold=Hold(Plain(Reason.NODE_NOT_READY), since, until)) if of_kubelet else path


def _retried(path: NodeProgress, node: NodeFacts, refusal: Refusal, policy: UpgradePolicy, now: float) -> NodeProgress:
    """Return the path of a node that may not be changed: its next write has to wait; what needs no write goes on."""
    if State.FAILED not in path.entered and (failure := overdue(node, policy, now)) is not None:
        path = apply_move(begin(node, now), failure, now)
    if patch_of(path, node) is None:
        return path
    if not rests(refusal, now) or (State.FAILED in path.entered and node.unlabelled and may_fail(refusal, now)):
        return path
    hold = refused(node, refusal, now)
    # One that has to wait is not done; but nothing of where it would come to is written.
    stays = node if node.state in IN_PROGRESS or node.state is State.FAILED else replace(
        path.node, unschedulable=node.unschedulable)
    return NodeProgress(stays, hold=hold, retry_at=hold.until)


class _Admission(msgspec.Struct, frozen=True):
    """Hold which nodes start, and what holds the others that wait, each with its place in the queue."""

    fleet: Fleet
    started: Mapping[str, Callable[[], NodeProgress]] = {}
    held: Mapping[str, tuple[Hold, int]] = {}
    wanted: Sequence[NodeView] = ()
    """Nodes that may start once they are in the ledger."""


def _admit(found: Survey, fleets: Fleets, snapshot: Snapshot, now: float) -> _Admission:
    """Fold over the waiting nodes in order: each that passes every gate changes the fleets for the next one.

    Where a ledger is kept, a node starts in the pass after the one in which it was granted, whatever the fleets do by then. What
    an earlier leader was granted is taken back and passes all gates anew: that may have been long ago.
    """
    nodes, policy, granted = found.nodes, found.policy, found.granted
    started = _withdrawn(nodes, snapshot, granted, now) | quarantined(nodes, snapshot.unsettled, policy, now)
    started |= put_back(nodes, found.fleet, snapshot.unsettled, now)
    held: dict[str, tuple[Hold, int]] = {}
    wanted: list[NodeView] = []
    place, room, notices = 0, Room(snapshot, now), policy.rollout.notice is not None
    found.holding.begin(policy)
    waiting = [node for node in nodes if node.waits and node.before.node.name not in snapshot.unsettled]
    own = fleets.of(policy)
    noticed = _noticed(waiting, own, policy)
    sets = GangSets(waiting, fleets, policy, granted)
    order = queue_order(granted, policy.rollout.domains, own, noticed, sets.turn)
    for judged in sets.in_order(sorted(waiting, key=order)):
        node, hold, name = judged.path.node, judged.hold, judged.before.node.name
        hold = hold or found.holding.held(node, fleets, policy, granted=name in granted)
        windows = fleets.whose_windows(node, policy) if notices else None
        hold = shut_for_notice(hold, node, policy, windows) if windows is not None else hold
        hold = hold or sets.held(judged) or held_by_notice(node, fleets.of(policy), policy, windows)
        if hold is not None:
            reason = hold.reason
            in_turn = judged.hold is None and reason not in _ITS_OWN
            place += in_turn
            held[name] = (hold, place if in_turn else 0)
            if reason is Reason.IDLE_AWAITED and not node.record.waiting:
                started[name] = partial(begins_to_wait, judged.path, now)
            elif judged.hold is None and name in granted and judged.quiet and reason is not Reason.WRITE_REFUSED:
                started[name] = partial(withdraw, judged.path)
            elif reason is Reason.NOTICE_GIVEN and name not in noticed:
                started[name] = partial(give_notice, judged.path, fleets.of(policy), policy)
            if has_a_place(hold):
                fleets.admit(node, policy, announced=True)
            continue
        if snapshot.grants is None or name in granted:
            earlier = name in granted and name in snapshot.inherited
            started[name] = partial(withdraw, judged.path) if earlier else partial(_start, judged.path, policy, now)
        elif may_be_granted(judged.before.node) and room.take(judged.before.node):
            started[name] = partial(NodeProgress, judged.before)
            wanted.append(judged.before.node)
            if (hold := not_entered(node, snapshot.ledger_refused)) is not None:
                place += 1
                held[name] = (hold, place)
        fleets.admit(node, policy)
    return _Admission(fleets.of(policy), started, held, wanted)


def _noticed(waiting: Sequence[NodeDecision], fleet: Fleet, policy: UpgradePolicy) -> frozenset[str]:
    """Return the nodes whose pods know already that they are next: they keep their places."""
    if policy.rollout.notice is None:
        return frozenset()
    known = (judged.path.node for judged in waiting if names.NOTICE in judged.before.node.annotations)
    return frozenset(node.node.name for node in known if current_notice(node, fleet, policy) is not None)


def _start(path: NodeProgress, policy: UpgradePolicy, now: float) -> NodeProgress:
    # A node that is tried again still counts where it came from.
    origin = path.node.record.driver if path.node.record.failure is not None else ""
    patient = policy.rollout.opportunistic is not None
    labels = labels_to_remember(path.node, policy.rollout.waves)
    move = replace(admit(path.node), driver=origin or policy.driver, asked=policy.asked, patient=patient, wave_labels=labels,
                   gangs=gangs_to_remember(path.node, policy, now))
    if names.NOTICE in path.node.node.annotations:
        move = replace(move, annotations={**move.annotations, names.NOTICE: None})
    return walk(apply_move(path, move, now), policy, now)


def _windows_shut(admit: _Admission) -> float | None:
    """Return when windows that are open shut: the nodes that are held wait for the next one then, whatever holds them now."""
    found = (windows.shuts if windows.shuts is not None else windows.changes if windows.opened and admit.held else None
             for windows in (admit.fleet.windows, *admit.fleet.wave_windows.values()))
    return min((at for at in found if at is not None), default=None)


def _plan(nodes: Sequence[NodeDecision], admit: _Admission, policy: UpgradePolicy, more: tuple[Action, ...] = ()) -> Plan:
    """Put together what the nodes come to, one by one and as a fleet."""
    actions: list[Action] = []
    statuses: dict[str, NodeStatus] = {}
    wakes = [*ends_of_windows(nodes, admit.fleet), *([shuts] if (shuts := _windows_shut(admit)) is not None else [])]
    states: Counter[State] = Counter()
    for judged in nodes:
        node, name = judged, judged.before.node.name
        if (start := admit.started.get(name)) is not None:
            node = held_on_error(node.before, start, policy)
        statuses[name] = node.shown
        if (held := admit.held.get(name)) is not None:
            statuses[name] = node.held(*held)
            wakes += [held[0].until] if held[0].until is not None else []
        actions += node.actions
        if node.path.retry_at is not None:
            wakes.append(node.path.retry_at)
        states[node.path.node.state] += 1
    return Plan(
        actions=(*actions, *more),
        nodes=statuses,
        wake_at=min(wakes, default=None),
        counts=count(states, admit.fleet, [hold for hold, _ in admit.held.values()], policy, statuses.values()),
        auto_upgrade=policy.auto_upgrade,
        waves=admit.fleet.waves.told,
    )
