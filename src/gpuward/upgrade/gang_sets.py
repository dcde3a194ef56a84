"""Nodes that start together, as pods of one gang are on them: all in one pass, if there is room for all, or none as yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from gpuward.model.gangs import GangAwaited
from gpuward.model.listing import some_of
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.views import PodView
from gpuward.upgrade.admission import Turn
from gpuward.upgrade.destinations import Fleets
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.fleet_gates import PERMITTING_GATES, eviction_budget
from gpuward.upgrade.gang_gate import most_at_once
from gpuward.upgrade.gangs import GangUse, pods_by_gang
from gpuward.upgrade.holding import held_by_the_fleet
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.notice_gate import held_by_notice

_WITH_AN_END: Final = frozenset({
    Reason.TEMPLATE_SETTLING, Reason.IDLE_AWAITED, Reason.IMAGE_NOT_STAGED, Reason.NOTICE_GIVEN})
"""What a node may wait for that is waited for with it."""
GangTurn = tuple[int, bool, bool, float, int, int, str, Turn]


def has_a_place(hold: Hold) -> bool:
    """Tell whether a node that is held keeps its place among those under way: it starts when a notice is over, its own or that of
    another one of its set.
    """
    what = hold.what
    return hold.reason is Reason.NOTICE_GIVEN or (isinstance(what, GangAwaited) and what.why is Reason.NOTICE_GIVEN)


class _Waiting(NamedTuple):
    """Hold what a set of nodes waits for under a fleet: trying once is enough for all of them."""

    fleet: Fleet
    nodes: frozenset[str]
    mate: NodeFacts
    why: Reason
    until: float | None


def _names(nodes: Iterable[NodeDecision]) -> frozenset[str]:
    return frozenset(each.before.node.name for each in nodes)


class GangSets:
    """Hold which nodes of a policy's queue start together. Those of other policies follow as they find room there."""

    def __init__(self, waiting: Sequence[NodeDecision], fleets: Fleets, policy: UpgradePolicy, granted: Set[str]) -> None:
        self._fleets, self._policy, self._granted = fleets, policy, granted
        self._gangs: dict[str, Mapping[str, Sequence[PodView]]] = {}
        """The pods of each waiting node by their gangs, where it has any."""
        self._staying: dict[str, Sequence[str]] = {}
        """Those gangs of each that it does not leave already."""
        self._sharing: defaultdict[str, dict[str, NodeDecision]] = defaultdict(dict)
        """The nodes of each of these that nothing of their own holds."""
        self._able: dict[str, bool] = {}
        self._latest: tuple[Set[str], float] = frozenset(), 0.0
        """Nodes under way, and until when the last of them is waited for."""
        self._going: dict[str, Sequence[NodeDecision]] = {}
        """The sets of nodes that start in this pass, or as many of them as find room, by each of their nodes."""
        self._waiting: dict[str, _Waiting] = {}
        """What the sets of nodes wait for that do not, by each of their nodes."""
        if policy.rollout.gangs is not None:
            self._look(waiting, fleets.of(policy).gangs)

    def _look(self, waiting: Sequence[NodeDecision], use: GangUse) -> None:
        for judged in waiting:
            name, found = judged.before.node.name, pods_by_gang(judged.path.node)
            if not found:
                continue
            self._gangs[name] = found
            self._staying[name] = [gang for gang, pods in found.items() if (left := use.left.get(gang)) is None or (
                any(map(left.since, pods)) and not use.goes_in_parts(gang, self._policy.rollout.domains))]
            if judged.hold is None and judged.before.refused is None:
                for gang in self._staying[name]:
                    self._sharing[gang][name] = judged

    def turn(self, judged: NodeDecision) -> GangTurn | Turn:
        """Return the sort key of a node: first those whose gangs are leaving already, or are about to elsewhere, then those
        alone and small gangs; last those whose gangs had to leave before, and had time since, but for what goes in parts.
        """
        if self._policy.rollout.gangs is None:
            return judged.turn
        gangs, use = self._gangs.get(judged.before.node.name, {}), self._fleets.of(self._policy).gangs
        found = [gang for gang in gangs if gang in use.left]
        here = [gang for gang in found if any(map(use.left[gang].since, gangs[gang]))]
        back = not all(use.goes_in_parts(gang, self._policy.rollout.domains) for gang in here)
        follows = not back and (bool(found) or not use.announced.isdisjoint(gangs))
        size, gang = max(((len(self._sharing.get(gang, ())), gang) for gang in gangs), default=(0, ""))
        lacking, again, started, attempts = judged.turn[:4]
        first, little = int(bool(here)) if follows else 2, 1 << 30 if back else max(size - 1, 0)
        return first, lacking, again, started, attempts, little, gang, judged.turn

    def in_order(self, queue: Sequence[NodeDecision]) -> Iterator[NodeDecision]:
        """Yield the nodes of a queue; where one starts, the others of its set come next, so that no other takes their places."""
        if not self._gangs:
            yield from queue
            return
        seen: set[str] = set()
        for judged in queue:
            if judged.before.node.name in seen:
                continue
            seen.add(judged.before.node.name)
            yield judged
            mates = [each for each in self._going.get(judged.before.node.name, ()) if each.before.node.name not in seen]
            seen.update(each.before.node.name for each in mates)
            yield from mates

    def held(self, judged: NodeDecision) -> Hold | None:
        """Hold a node that may start until all of its set may, as long as that can be."""
        name, policy, node = judged.before.node.name, self._policy, judged.path.node
        if name not in self._gangs or name in self._granted or node.requested:
            return None
        fleet = self._fleets.of(policy)
        if name in self._going:
            mates = [each for each in self._going[name] if each.before.node.name != name]
            placed = (each for each in mates if each.before.node.name in fleet.in_progress)
            return self._held_by_notices(node, mates, placed, fleet)
        known = self._waiting.get(name)
        if known is not None and known.fleet is fleet and known.mate.node.name != name:
            return self._awaited(node, known.nodes, known.mate, known.why, known.until, fleet)
        if not self._may_start(judged, fleet):  # it waits for an answer to its notice, whatever the others do
            return None
        mates = self._mates(judged, fleet)
        hold = None
        if mates and len(mates) < most_at_once(fleet, policy):
            hold = self._without_room(node, mates, fleet) or self._held_by_others(node, mates, fleet)
        if hold is None:
            together = (judged, *mates)
            self._going |= {each.before.node.name: together for each in together}
        return hold

    def _mates(self, judged: NodeDecision, fleet: Fleet) -> list[NodeDecision]:
        """Return the others that share a gang with a node, or are linked to it by several, and would start if there were room."""
        seen, known, found = {judged.before.node.name}, set[str](), [judged]
        for each in found:
            gangs = [gang for gang in self._staying.get(each.before.node.name, ()) if gang not in known]
            known.update(gangs)
            for gang in gangs:
                for name, other in self._sharing.get(gang, {}).items():
                    if name not in seen and name not in self._granted:
                        seen.add(name)
                        found += [other] if self._may_start(other, fleet) else []
        return sorted(found[1:], key=lambda each: each.turn)

    def _without_room(self, node: NodeFacts, mates: Sequence[NodeDecision], fleet: Fleet) -> Hold | None:
        """Hold a node whose set NVIDIA's limits have no room for now, without a trial."""
        policy, names = self._policy, _names(mates) | {node.node.name}
        under_way = len(fleet.in_progress) + len(names - fleet.in_progress)
        if policy.max_parallel_upgrades and under_way > policy.max_parallel_upgrades:
            return self._set_awaited(node, mates, mates[-1].path.node, Reason.PARALLEL_LIMIT, self._until(None, fleet), fleet)
        if len(fleet.unavailable) + len(names - fleet.unavailable) > max(
                len(fleet.unavailable), policy.max_unavailable.of(fleet.total)):
            return self._set_awaited(node, mates, mates[-1].path.node, Reason.UNAVAILABLE_LIMIT, self._until(None, fleet), fleet)
        return None

    def _held_by_others(self, node: NodeFacts, mates: Sequence[NodeDecision], fleet: Fleet) -> Hold | None:
        trial, policy = self._fleets.copied(), self._policy
        trial.admit(node, policy)
        # The others have their places in this pass already, and would be in their own way.
        for mate in (each.path.node for each in mates if each.before.node.name not in fleet.in_progress):
            found = held_by_the_fleet(mate, trial, policy, granted=False)
            if found is not None:
                return self._set_awaited(node, mates, mate, found.reason, self._until(found, fleet), fleet)
            trial.admit(mate, policy)
        return self._held_by_notices(node, mates, mates, fleet)

    def _held_by_notices(
        self, node: NodeFacts, mates: Sequence[NodeDecision], given: Iterable[NodeDecision], fleet: Fleet
    ) -> Hold | None:
        """Hold a node, whose own notice is over, until those of others of its set are."""
        policy = self._policy
        if policy.rollout.notice is None or held_by_notice(node, fleet, policy) is not None:
            return None
        for mate in (each.path.node for each in given):
            notice = held_by_notice(mate, fleet, policy)
            if notice is not None and notice.reason is Reason.NOTICE_GIVEN:
                return self._awaited(node, _names(mates), mate, notice.reason, notice.until, fleet)
        return None

    def _until(self, hold: Hold | None, fleet: Fleet) -> float | None:
        """Return until when there may come to be room: while nodes are under way, and have been for no longer than a gang is
        spared. Bringing images somewhere ends by itself, and so do the patience with which a node waits until it is idle and
        the first moments of a new driver.
        """
        settings = self._policy.rollout.gangs
        if settings is None or (hold is not None and hold.reason is Reason.IMAGE_NOT_STAGED):
            return None
        if hold is not None and hold.reason in (Reason.IDLE_AWAITED, Reason.TEMPLATE_SETTLING):
            return hold.until
        if self._latest[0] is not fleet.in_progress:
            begun = (fleet.gangs.begun.get(name, 0.0) for name in fleet.in_progress)
            self._latest = fleet.in_progress, max((at + settings.until for at in begun), default=0.0)
        return self._latest[1]

    def _set_awaited(
        self, node: NodeFacts, mates: Sequence[NodeDecision], mate: NodeFacts, why: Reason, until: float | None, fleet: Fleet
    ) -> Hold | None:
        """Return that a node waits for others, as all of its set do; nothing once that is over."""
        names = _names(mates) | {node.node.name}
        self._waiting |= dict.fromkeys(names, _Waiting(fleet, names, mate, why, until))
        return self._awaited(node, names, mate, why, until, fleet)

    def _awaited(
        self, node: NodeFacts, names: Set[str], mate: NodeFacts, why: Reason, until: float | None, fleet: Fleet
    ) -> Hold | None:
        """Return that a node waits for others; nothing once that is over."""
        if until is not None and fleet.now >= until:
            return None
        others = frozenset(names - {node.node.name})
        shared = (gang for gang in self._staying[node.node.name] if self._sharing.get(gang, {}).keys() - {node.node.name})
        told = GangAwaited(next(shared, ""), some_of(others), len(others), mate.node.name, why)
        return Hold(told, node.record.since, until)

    def _may_start(self, judged: NodeDecision, fleet: Fleet) -> bool:
        """Tell whether a node would start if there were room: one that waits for something else is not waited for."""
        name = judged.before.node.name
        if name not in self._able:
            gates = (*PERMITTING_GATES, eviction_budget, held_by_notice)
            holds = (gate(judged.path.node, fleet, self._policy) for gate in gates)
            try:
                self._able[name] = all(hold is None or hold.reason in _WITH_AN_END for hold in holds)
            except Exception:  # it is this node's trouble alone, and it says so in its turn
                self._able[name] = False
        return self._able[name]
