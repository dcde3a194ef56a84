"""Gangs of a fleet: on how many nodes each has pods, which of them had to leave a node in this rollout, and when."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import floor
from typing import Final

import msgspec

from gpuward.model.domains import DomainMode, DomainSettings, domains_of
from gpuward.model.gangs import LargeGang
from gpuward.model.notice import notice_of
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import AGREEMENT
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import PodView
from gpuward.upgrade.facts import NodeFacts

MOST_REMEMBERED = 20
"""Gangs that the record of a node names: those that had to leave it last."""
_WAITING: Final = frozenset({State.UPGRADE_REQUIRED, State.FAILED})


class GangLeft(msgspec.Struct, frozen=True, order=True):
    """Say when a gang had to leave a node last in this rollout, and which one that was."""

    at: float
    node: str

    def since(self, pod: PodView) -> bool:
        """Tell whether a pod came after that; pods are dated by whole seconds. One from before is about to start anew as well."""
        return pod.created >= floor(self.at)


class GangUse(msgspec.Struct, frozen=True):
    """Hold how the gangs of the cluster stand; nothing of it where nodes start one by one."""

    sizes: Mapping[str, int] = {}
    """On how many nodes of the policy each has pods."""
    nodes: Mapping[str, frozenset[str]] = {}
    """Those of these nodes that each has to leave, or had to leave before it came back."""
    domains: Mapping[str, Counter[str]] = {}
    """How many such nodes there are in each domain, by gang."""
    parted: frozenset[str] = frozenset()
    """Those that limits of a policy never let leave its nodes at once."""
    leaving: Mapping[str, int] = {}
    """How many nodes are under way from which each has gone."""
    left: Mapping[str, GangLeft] = {}
    """Which node each had to leave last."""
    leaves: Mapping[str, Sequence[GangLeft]] = {}
    """All that each had to leave: pods may have come somewhere between two of them."""
    begun: Mapping[str, float] = {}
    """When each node under way was admitted; of one that may be, nobody knows when, and that is now."""
    announced: frozenset[str] = frozenset()
    """Those that have to leave nodes which are given notice, once that is over."""
    noticed: Mapping[str, float] = {}
    """When the last notice ends of nodes that wait for each other, by the gangs that link them."""

    def with_others(self, others: Iterable[GangUse]) -> GangUse:
        """Return it with what nodes of other policies know of the same gangs."""
        left, begun, leaves = dict(self.left), dict(self.begun), dict(self.leaves)
        domains, parted = dict(self.domains), set(self.parted)
        for other in others:
            domains |= {gang: domains.get(gang, Counter()) + found for gang, found in other.domains.items()}
            parted |= other.parted & other.nodes.keys()  # one that has to leave none of these has no part there
            left |= {gang: max(found, left.get(gang, found)) for gang, found in other.left.items()}
            leaves |= {gang: (*leaves.get(gang, ()), *found) for gang, found in other.leaves.items()}
            begun |= other.begun
        return msgspec.structs.replace(
            self, left=left, leaves=leaves, begun=begun, domains=domains, parted=frozenset(parted))

    def goes_in_parts(self, gang: str, settings: DomainSettings | None) -> bool:
        """Tell whether a gang can never leave all of its nodes at once: no limit is widened for it."""
        found = self.domains.get(gang)
        if gang in self.parted or settings is None or not found:
            return gang in self.parted
        return (len(found) if settings.mode is DomainMode.WHOLE else max(found.values())) > settings.max

    def admitted(self, node: NodeFacts, now: float, *, announced: bool = False) -> GangUse:
        """Return it with one more node under way: what has pods there leaves, and none that is seen came since. From one that
        is given notice nothing leaves as yet.
        """
        if announced:
            return msgspec.structs.replace(
                self, begun={**self.begun, node.node.name: now}, announced=self.announced | pods_by_gang(node).keys())
        left = {gang: GangLeft(now + 1, node.node.name) for gang in pods_by_gang(node)}
        return msgspec.structs.replace(
            self, left={**self.left, **left} if left else self.left, begun={**self.begun, node.node.name: now},
            leaves={**self.leaves, **{gang: (each,) for gang, each in left.items()}} if left else self.leaves)

    def left_before(self, gang: str, pod: PodView) -> GangLeft | None:
        """Return the last node that a gang had to leave before one of its pods came."""
        return max((left for left in self.leaves.get(gang, ()) if left.since(pod)), default=None)

    def large(self, node: NodeFacts, limit: int) -> LargeGang | None:
        """Return the first gang of a node that has pods on more nodes than a limit, or had before it began to leave."""
        found = ((gang, self._size(gang, pods)) for gang, pods in pods_by_gang(node).items())
        return next((LargeGang(gang, size) for gang, size in found if size > limit), None)

    def _size(self, gang: str, pods: Iterable[PodView]) -> int:
        left = self.left.get(gang)
        leaves = left is not None and not any(map(left.since, pods))
        return self.sizes.get(gang, 0) + (self.leaving.get(gang, 0) if leaves else 0)


NO_GANGS = GangUse()


def pods_by_gang(node: NodeFacts) -> dict[str, tuple[PodView, ...]]:
    """Return the pods of gangs that an upgrade of a node evicts."""
    found: dict[str, tuple[PodView, ...]] = {}
    if node.restart_only:
        return found
    for pod in node.to_evict.pods:
        if pod.gang and not (pod.finished or pod.deleting):
            found[pod.gang] = (*found.get(pod.gang, ()), pod)
    return found


def gang_use(nodes: Sequence[NodeFacts], doubtful: Set[str], policy: UpgradePolicy, now: float) -> GangUse:
    """Return how the gangs stand by the nodes of a policy."""
    if policy.rollout.gangs is None:
        return NO_GANGS
    sizes, leaving, key = Counter[str](), Counter[str](), policy.rollout.domains.key if policy.rollout.domains else ""
    members, domains = defaultdict[str, set[str]](set), defaultdict[str, Counter[str]](Counter)
    leaves = defaultdict[str, list[GangLeft]](list)
    begun = dict.fromkeys(doubtful, now)
    for node in nodes:
        here = {pod.gang for pod in node.to_evict.pods if pod.gang and not (pod.finished or pod.deleting)}
        sizes.update(here)
        if node.state in IN_PROGRESS:
            begun[node.node.name] = node.record.started
            leaving.update({gang for gang, _ in node.record.gangs} - here)
        for gang, at in (had := dict(_had_to_leave(node))).items():
            leaves[gang].append(GangLeft(at, node.node.name))
        for gang in here if node.state in _WAITING else here & had.keys():
            members[gang].add(node.node.name)
            domains[gang].update(domains_of(node.node, node.record, key) if key else ())
    noticed = {} if policy.rollout.notice is None else _last_notices(nodes, now)
    left = {gang: max(found) for gang, found in leaves.items()}
    there = {gang: frozenset(found) for gang, found in members.items()}
    return GangUse(sizes, there, domains, leaving=leaving, left=left, leaves=leaves, begun=begun, noticed=noticed)


def _last_notices(nodes: Iterable[NodeFacts], now: float) -> dict[str, float]:
    """Return when the last notice ends of nodes that wait, for all gangs that these have or that nodes with several link."""
    leaders, ends = dict[str, str](), dict[str, float]()

    def leader(gang: str) -> str:
        while gang != leaders.setdefault(gang, gang):
            gang = leaders[gang]
        return gang

    for node in nodes:
        if node.state is not State.UPGRADE_REQUIRED or not (gangs := [*pods_by_gang(node)]):
            continue
        first = leader(gangs[0])
        leaders |= {leader(gang): first for gang in gangs}
        notice = notice_of(node.node.annotations)
        if notice is not None and notice.given <= now + AGREEMENT and node.target and node.runs(notice.target):
            ends[gangs[0]] = max(notice.begins, ends.get(gangs[0], 0.0))
    last = dict[str, float]()
    for gang, end in ends.items():
        last[leader(gang)] = max(end, last.get(leader(gang), 0.0))
    return {gang: last[leader(gang)] for gang in leaders if leader(gang) in last}


def _had_to_leave(node: NodeFacts) -> Iterator[tuple[str, float]]:
    """Yield the gangs that a node was sent to its driver in spite of, and when; not one that never went."""
    under_way = node.state in IN_PROGRESS
    if not under_way and node.retargeted:
        return
    for gang, at in node.record.gangs:
        stays = any(pod.gang == gang and pod.created < floor(at) and not pod.finished for pod in node.to_evict.pods)
        if under_way or not stays:
            yield gang, at


def gangs_to_remember(node: NodeFacts, policy: UpgradePolicy, now: float) -> tuple[tuple[str, float], ...]:
    """Return what is remembered of the gangs of a node that is admitted."""
    if policy.rollout.gangs is None:
        return ()
    known = {} if node.retargeted else dict(node.record.gangs)
    leaving = pods_by_gang(node)
    kept = [(gang, at) for gang, at in known.items() if gang not in leaving]
    return (*kept, *((gang, now) for gang in leaving))[-MOST_REMEMBERED:]
