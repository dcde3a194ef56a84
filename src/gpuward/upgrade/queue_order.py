"""The order in which the nodes that wait for their turn are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from operator import attrgetter
from typing import TypeAlias

from gpuward.model.domains import DomainMode, DomainSettings, domains_of
from gpuward.upgrade.admission import Turn
from gpuward.upgrade.domains import DomainUse, Rank
from gpuward.upgrade.gang_sets import GangTurn
from gpuward.upgrade.node_decision import NodeDecision

QueueKey: TypeAlias = (
    tuple[bool, bool, bool, int, Turn | GangTurn] | tuple[bool, bool, bool, int, Rank, Turn | GangTurn])


def queue_order(
    granted: Set[str], domains: DomainSettings | None, use: DomainUse, waves: Mapping[str, int], noticed: Set[str] = frozenset(),
    turn: Callable[[NodeDecision], GangTurn | Turn] = attrgetter("turn"),
) -> Callable[[NodeDecision], QueueKey]:
    """Return the sort key of the nodes that wait: those first that are in the ledger, and those last that may not be changed, as
    others have to go on. Of the others first those that were given notice, and then wave after wave, but for nodes that somebody
    asks for by hand, which wait for none. Where domains are upgraded whole, the nodes of one follow each other. `turn` orders the
    rest.
    """
    last = max(waves.values(), default=0)

    def wave(judged: NodeDecision) -> int:
        return 0 if judged.before.requested else waves.get(judged.before.node.name, last)

    if domains is None or domains.mode is not DomainMode.WHOLE:
        return lambda judged: (
            judged.before.node.name not in granted, judged.before.refused is not None, judged.before.node.name not in noticed,
            wave(judged), turn(judged))
    key = domains.key

    def domain_by_domain(judged: NodeDecision) -> QueueKey:
        node = judged.path.node
        rank = use.rank(domains_of(node.node, node.record, key))
        name = node.node.name
        return name not in granted, judged.before.refused is not None, name not in noticed, wave(judged), rank, turn(judged)

    return domain_by_domain
