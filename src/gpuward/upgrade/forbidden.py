"""What one node finds out for all: that the operator has no right to evict pods. A webhook speaks of one pod alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from gpuward.upgrade.facts import NodeFacts

REFUSAL_COUNTS: Final = 3600.0
"""Seconds for which what one node was refused holds others after the last try: nobody tells if it would be granted now."""
_NO_RIGHT: Final = re.compile(r'pods(\.\S+)? ("[^"]*" )?is forbidden: User "[^"]*" cannot create resource "pods/eviction"')
"""How an API server begins that says of a user, and not of a pod, that it may not evict: admission begins otherwise."""


class Forbidden(msgspec.Struct, frozen=True):
    """Say in which namespace and on which node it was found out, since when that node is tried, and what was said."""

    namespace: str
    node: str
    since: float
    message: str
    until: float
    """Until when it counts."""


def lacks_right(message: str) -> bool:
    """Tell whether an eviction was refused for want of the right, and not for the pod's sake."""
    return _NO_RIGHT.match(message) is not None


def tells_of_it(cause: str) -> bool:
    """Tell whether a failure's cause quotes such a refusal."""
    return _NO_RIGHT.search(cause) is not None


def forbidden_on(node: NodeFacts, resumed_at: float) -> tuple[Forbidden, ...]:
    """Return the evictions on a node that were refused for want of the right since the rollout was resumed, one a namespace."""
    found: dict[str, Forbidden] = {}
    for pod in (*node.to_evict.pods, *node.to_drain.pods) if node.refusals else ():
        refusal = node.refusals.get(pod.uid)
        if refusal is not None and refusal.at > resumed_at and lacks_right(refusal.message):
            until = refusal.at + REFUSAL_COUNTS
            found.setdefault(pod.namespace, Forbidden(pod.namespace, node.node.name, node.record.started, refusal.message, until))
    return tuple(found.values())


def forbidden_by_namespace(found: Iterable[Forbidden], now: float) -> dict[str, Forbidden]:
    """Return what counts still, the first of each namespace."""
    known: dict[str, Forbidden] = {}
    for one in sorted((one for one in found if now < one.until), key=lambda one: (one.since, one.node)):
        known.setdefault(one.namespace, one)
    return known
