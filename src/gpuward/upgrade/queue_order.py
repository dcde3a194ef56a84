"""The order in which the nodes that wait for their turn are looked at."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TypeAlias

from gpuward.model.domains import DomainMode, DomainSettings, domains_of
from gpuward.upgrade.admission import Turn
from gpuward.upgrade.domains import DomainUse, Rank
from gpuward.upgrade.node_decision import NodeDecision

QueueKey: TypeAlias = tuple[bool, bool, Turn] | tuple[bool, bool, Rank, Turn]


def queue_order(granted: Set[str], domains: DomainSettings | None, use: DomainUse) -> Callable[[NodeDecision], QueueKey]:
    """Return the sort key of the nodes that wait: those first that are in the ledger, and those last that may not be changed, as
    others have to go on. Where domains are upgraded whole, the nodes of one follow each other.
    """
    if domains is None or domains.mode is not DomainMode.WHOLE:
        return lambda judged: (judged.before.node.name not in granted, judged.before.refused is not None, judged.turn)
    key = domains.key

    def domain_by_domain(judged: NodeDecision) -> QueueKey:
        node = judged.path.node
        rank = use.rank(domains_of(node.node, node.record, key))
        return node.node.name not in granted, judged.before.refused is not None, rank, judged.turn

    return domain_by_domain
