"""What one node's facts come to, kept from pass to pass for as long as neither they nor the time change it.

Most nodes of a large fleet are the same from one pass to the next. Keeping changes nothing about a plan but the time it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from math import inf
from typing import Final, NamedTuple

import msgspec

from gpuward import names
from gpuward.model.actions import Action
from gpuward.model.history import history_of
from gpuward.model.plan import Hold, NodeStatus
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, Record
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, State
from gpuward.model.views import NodeView, PodView
from gpuward.model.waits import Plain
from gpuward.upgrade.admission import Turn, turn
from gpuward.upgrade.budget_coverage import Coverage
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.facts_cache import FactsCache, RolloutContext
from gpuward.upgrade.fleet import Standing, standing
from gpuward.upgrade.holding import Holding, undecided_for
from gpuward.upgrade.marking import marked
from gpuward.upgrade.node_gates import held_by_itself
from gpuward.upgrade.pending_driver_pods import has_pending_driver
from gpuward.upgrade.plugin_first import offering_again
from gpuward.upgrade.progress import NodeProgress
from gpuward.upgrade.refused import refused
from gpuward.upgrade.samples import NO_SAMPLES, NodeSamples, samples_on
from gpuward.upgrade.wave_nodes import WaveNode, wave_node
from gpuward.upgrade.writing import actions_of

NO_TURN: Turn = (False, False, 0.0, 0, 0, 0, 0.0, "")


class NodeDecision(msgspec.Struct, frozen=True):
    """Hold what was decided about one node alone."""

    before: NodeFacts
    path: NodeProgress
    standing: Standing
    turn: Turn
    """Its sort key in the queue, if it waits there."""
    hold: Hold | None
    """What a gate that looks at nothing but the node holds it for, if it waits in the queue."""
    shown: NodeStatus
    """The node as people see it, if the fleet does not hold it."""
    waits: bool
    """Whether the node waits to be admitted."""
    quiet: bool
    """Whether there is nothing to do about the node."""
    actions: tuple[Action, ...] = ()
    """What to do about it, if the path is followed."""
    wave: WaveNode | None = None
    """What waves have to know of it, where the rollout has some."""
    samples: NodeSamples = NO_SAMPLES
    staged: bool = False
    """Whether it is remembered that images were brought onto it."""
    requested: bool = False
    """Whether somebody asks for its upgrade by hand."""
    pending: bool = False
    """Whether its driver pod has loaded nothing."""
    driver_fails: bool = False
    """Whether a driver that should run there does not, so that it serves nobody."""

    def held(self, hold: Hold, turn: int) -> NodeStatus:
        """Return the node as people see it, held in its place of the queue."""
        shown = self.shown
        return msgspec.structs.replace(shown, hold=hold, turn=turn)


def held_on_error(before: NodeFacts, decision: Callable[[], NodeProgress], policy: UpgradePolicy) -> NodeDecision:
    """Judge a node, and hold one about which anything fails: a bug that one node brings to light must not stop the others."""
    try:
        return node_decision(before, decision(), policy)
    except Exception as error:  # whatever it is, it is this node's trouble alone, and its reason says so
        return node_decision(before, undecided(before, error), policy)


def undecided(node: NodeFacts, error: Exception) -> NodeProgress:
    """Return the path of a node about which nothing can be decided."""
    return NodeProgress(node, hold=undecided_for(node, error))


def node_decision(before: NodeFacts, path: NodeProgress, policy: UpgradePolicy) -> NodeDecision:
    """Return all that follows about a node from its own path."""
    path = offering_again(marked(path, before, policy))
    node = path.node
    turned = node.unschedulable != before.unschedulable
    quiet = not (path.entered or path.adopted or path.annotations or path.labels or path.actions or turned)
    waits = node.state is State.UPGRADE_REQUIRED and path.hold is None
    hold = held_by_itself(node, policy) if waits else None
    state = node.state if node.node.state is not None else None
    stands = standing(before, node, policy)
    if stands.unavailable and not stands.in_progress and _is_stuck(node, path.hold or hold, waits):
        stands = msgspec.structs.replace(stands, stuck=True)
    return NodeDecision(
        before=before,
        path=path,
        standing=stands,
        turn=turn(node) if waits else NO_TURN,
        hold=hold,
        shown=NodeStatus(
            state, node.record.since, path.hold, node.node.upgrade_label,
            up_to_date=state in AT_REST and node.up_to_date and not node.keeps_driver,
            failure=None if state in AT_REST else node.record.failure,
            cordoned=(state in AT_REST or state is State.UPGRADE_REQUIRED) and node.unschedulable
            and node.record.cordon is not CordonOwner.GPUWARD,
            outdated=state in AT_REST and node.loaded and not node.in_step and node.unserved is None,
        ),
        waits=waits,
        quiet=quiet,
        actions=() if quiet else actions_of(path, before),
        wave=wave_node(before, node, policy, failed=stands.failed) if _in_waves(stands, policy) else None,
        samples=samples_on(node, history_of(before.node.annotations.get(names.UPGRADE_HISTORY))),
        staged=names.STAGED in before.node.annotations,
        requested=before.requested,
        pending=has_pending_driver(node),
        driver_fails=before.driver is not None and not before.in_step and not before.serves and bool(before.trouble),
    )


def _in_waves(stands: Standing, policy: UpgradePolicy) -> bool:
    return stands.counts and bool(policy.rollout.waves or policy.rollout.growth)


_TIME_IS_UP: Final = frozenset({Reason.DRIVER_STOPPING, Reason.DRIVER_POD_MISSING})
"""What ends by itself within a deadline, which was over before where a node has failed."""


def _is_stuck(node: NodeFacts, hold: Hold | None, waits: bool) -> bool:
    """Tell whether a node that is out of service comes back only if somebody does something about it."""
    if hold is None:
        return not waits and (node.unschedulable or not node.node.ready)
    if hold.reason is Reason.DRIVER_POD_MISSING and node.repels:
        return True
    if node.state is State.FAILED and hold.reason in _TIME_IS_UP:
        return True
    return hold.reason.needs_person or (hold.reason is Reason.SKIPPED and (node.unschedulable or not node.node.ready))


class _Kept(NamedTuple):
    """Hold what a node with these pods came to."""

    node: NodeView
    pods: Sequence[PodView]
    until: float
    """When time alone may change it."""
    judged: NodeDecision | None
    """None for a node that is not managed."""


class DecisionCache(FactsCache):
    """Keep facts, and what they came to, from one pass to the next."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, _Kept] = {}
        self._latest = 0.0
        self.coverage = Coverage()
        self.holding = Holding()

    def prepare(self, common: RolloutContext) -> None:
        """Forget everything if it may be out of date, and nodes that are gone in any case."""
        before = self._facts
        super().prepare(common)
        if self._facts is not before:
            self._kept = {name: kept for name, kept in self._kept.items() if name in self._facts}

    def judge_all(
        self, snapshot: Snapshot, policy: UpgradePolicy, now: float, decision: Callable[[NodeFacts], NodeProgress],
        granted: Set[str] = frozenset(),
    ) -> list[NodeDecision]:
        """Return what every managed node comes to, by name: as before where neither node, pods nor time changed anything."""
        common = RolloutContext(snapshot, policy, granted, now)
        self.prepare(common)
        if now < self._latest:  # the clock was set back, and the times of what is kept are of another one
            self._kept.clear()
        self._latest = now
        found: list[NodeDecision] = []
        known, nobody = self._kept.get, tuple[PodView, ...]()
        # What was refused, granted or is not known is no part of a node or its pods.
        remembered = bool(snapshot.refusals or snapshot.refused_writes)
        doubtful = granted | snapshot.unsettled | snapshot.evicted.keys() | common.unplaced.keys()
        for name in sorted(snapshot.nodes):
            node, pods = snapshot.nodes[name], snapshot.pods.get(name, nobody)
            kept = known(name)
            known_well = kept is not None and kept.node is node and kept.pods is pods and now < kept.until
            if kept is None or not known_well or remembered or name in doubtful:
                judged = self._judged(node, pods, common, now, decision)
            else:
                judged = kept.judged
            if judged is not None:
                found.append(judged)
        return found

    def _judged(
        self, node: NodeView, pods: Sequence[PodView], common: RolloutContext, now: float,
        decision: Callable[[NodeFacts], NodeProgress],
    ) -> NodeDecision | None:
        try:
            facts = self.facts_of(node, pods, common)
        except Exception as error:  # as above
            bare = NodeFacts(node, node.state or State.UNKNOWN, node.record or Record())
            return node_decision(bare, undecided(bare, error), common.policy)
        if facts is None:
            self._kept[node.name] = _Kept(node, pods, inf, None)
            return None
        if node.name in common.snapshot.unsettled:
            begun = common.snapshot.unanswered.get(node.name)
            hold = None if begun is None else Hold(Plain(Reason.WRITE_UNANSWERED), begun)
            if hold is None and facts.refused is not None:
                hold = refused(facts, facts.refused, now)
            return node_decision(facts, NodeProgress(facts, hold=hold), common.policy)
        kept = self._kept.get(node.name)
        if kept is not None and kept.judged is not None and kept.judged.before is facts and now < kept.until:
            return kept.judged
        judged = held_on_error(facts, lambda: decision(facts), common.policy)
        lasts = not facts.refusals and facts.refused is None and not facts.unplaced
        if judged.quiet and lasts and node.name not in common.doubtful:
            until = inf if judged.path.retry_at is None else judged.path.retry_at
            self._kept[node.name] = _Kept(node, pods, until, judged)
        else:
            self._kept.pop(node.name, None)
        return judged
