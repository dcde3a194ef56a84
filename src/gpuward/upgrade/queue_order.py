"""The order in which the nodes that wait for their turn are looked at."""

from __future__ import annotations

from collections.abc import Callable, Set
from operator import attrgetter
from typing import TypeAlias

from gpuward.model.domains import DomainMode, DomainSettings, domains_of
from gpuward.upgrade.admission import Turn
from gpuward.upgrade.domains import Rank
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.gang_sets import GangTurn
from gpuward.upgrade.node_decision import NodeDecision

_Key: TypeAlias = tuple[bool, bool, bool, int, bool, Turn | GangTurn]
QueueKey: TypeAlias = _Key | tuple[bool, bool, bool, int, Rank, bool, Turn | GangTurn]


def queue_order(
    granted: Set[str], domains: DomainSettings | None, fleet: Fleet, noticed: Set[str] = frozenset(),
    turn: Callable[[NodeDecision], GangTurn | Turn] = attrgetter("turn"),
) -> Callable[[NodeDecision], QueueKey]:
    """Return the sort key of the nodes that wait: those first that are in the ledger, and those last that may not be changed, as
    others have to go on. Of the others first those that were given notice, and then wave after wave, but for nodes that somebody
    asks for by hand, which wait for none. Where domains are upgraded whole, the nodes of one follow each other. While no node
    is up to date with a driver, those on which one does not come up that serves others try it last. `turn` orders the rest.
    """
    waves = fleet.waves.places
    last = max(waves.values(), default=0)

    def node_by_node(judged: NodeDecision) -> _Key:  # called for each node of a large fleet in each pass
        before = judged.before
        name = before.node.name
        wave = 0 if judged.requested else waves.get(name, last)
        little = judged.driver_fails and _tells_little(before, fleet)
        return name not in granted, before.refused is not None, name not in noticed, wave, little, turn(judged)

    if domains is None or domains.mode is not DomainMode.WHOLE:
        return node_by_node
    key = domains.key

    def domain_by_domain(judged: NodeDecision) -> QueueKey:
        node = judged.path.node
        rank = fleet.domains.rank(domains_of(node.node, node.record, key))
        granted_not, refused, noticed_not, wave, little, in_turn = node_by_node(judged)
        return granted_not, refused, noticed_not, wave, rank, little, in_turn

    return domain_by_domain


def _tells_little(node: NodeFacts, fleet: Fleet) -> bool:
    """Tell whether a driver that fails on a node would hold the others for nothing: one that serves others does not come up there
    either, as where the GPU is broken, or the node has another operating system than the driver is for. Where the one before
    comes up nowhere it is to blame, and a node that it keeps out of service is the right one to try the next.
    """
    return node.which_driver in fleet.serving and not node.requested and node.target not in fleet.proven
