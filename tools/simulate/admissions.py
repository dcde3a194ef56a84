"""The limits across leaders: who was granted what under which limits, and whether an admission keeps to them.

A leader enters nodes into the ledger on the Lease before it starts them. What it had been shown then, and the limits that it knew
then, are the terms of the grant. So at every admission, by whomever, the Lease grants the node as it is; and the nodes that truly
use a slot, or are truly out of service, in the store at that moment stay below the limit: all that an admission took, whoever
wrote it, and all that the granter could know of. What people and machines took since then is nobody's fault. Where more was
granted under other terms since, the widest of them count: whoever granted it counted the earlier grants.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gpuward import names
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import NodeView
from gpuward.upgrade.ledger import read_grants, stamp

if TYPE_CHECKING:
    from tools.simulate.history import Sight
    from tools.simulate.process import Process
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import World

Object = dict[str, Any]


class Terms(msgspec.Struct, frozen=True):
    """Hold the limits under which nodes were granted, and what the granter had been shown."""

    granter: str
    nodes: int
    """Up to which version it knew the nodes."""
    pods: int
    parallel: float
    unavailable: int


class Grant(msgspec.Struct, frozen=True):
    """Hold one entry of the ledger: the node's stamp, and the number of its terms."""

    stamp: str
    number: int


class Ledger:
    """Follow what the Lease grants."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._terms: list[Terms] = []
        self.awaited: list[Callable[[Sequence[str]], None]] = []
        """What the next grant sets off, before its writer hears of it."""

    def changed(self, lease: Object, writer: Process | None, world: World) -> None:
        """Take a change of the Lease; what is new in it is granted under what its writer knows now."""
        held = read_grants((lease["metadata"].get("annotations") or {}).get(names.ADMISSIONS, "{}"))
        known = {node: grant for node, grant in self._grants.items() if held.get(node) == grant.stamp}
        new = {node: text for node, text in held.items() if node not in known}
        if new and writer is not None:
            self._terms.append(_terms(writer, world))
            awaited, self.awaited = self.awaited, []
            for act in awaited:
                asyncio.get_running_loop().call_soon(act, sorted(new))
        self._grants = known | {node: Grant(text, len(self._terms) - 1) for node, text in new.items()}

    def terms(self, node: str, before: Sight) -> list[Terms]:
        """Return the terms under which a node is granted as it is, and all later ones; nothing where it is not granted."""
        grant = self._grants.get(node)
        if grant is None or grant.stamp != stamp(_view(node, before)):
            return []
        return self._terms[grant.number:]


def _view(node: str, sight: Sight) -> NodeView:
    annotations = {names.UPGRADE_RECORD: sight.record} if sight.record else {}
    return NodeView(name=node, uid=sight.uid, labels={names.UPGRADE_STATE: sight.label}, annotations=annotations)


def _terms(granter: Process, world: World) -> Terms:
    policies = [policy for policy in world.watch.policies_known_to(granter) if policy is not None]
    total = sum(1 for node in world.watch.history.nodes() if _may_be_managed(node, granter, world))
    return Terms(granter.name, granter.known["nodes"], granter.known["pods"],
                 max((_slots(policy) for policy in policies), default=0),
                 max((policy.max_unavailable.of(total) for policy in policies), default=0))


def _slots(policy: UpgradePolicy) -> float:
    return policy.max_parallel_upgrades or math.inf


def _may_be_managed(node: str, granter: Process, world: World) -> bool:
    view = world.watch.history.view(node, granter)
    if view is None or not view.exists:
        return False
    return view.wanted or bool(view.label or view.record) or world.has_driver_pod(node, granter.known["pods"])


# The rules.


def who_starts_is_in_the_ledger(change: NodeChange, world: World) -> str | None:
    """Admit no node that the Lease does not grant as it is, whoever leads."""
    if not change.admits or world.watch.ledger.terms(change.node, change.before):
        return None
    return f"{change.writer.name} starts it, and the Lease does not grant it as it is"


def parallel_limit_holds(change: NodeChange, world: World) -> str | None:
    """Admit nobody beyond maxParallelUpgrades, whoever admitted the others."""
    terms = world.watch.ledger.terms(change.node, change.before)
    if not change.admits or not terms:
        return None
    limit = max(each.parallel for each in terms)
    under_way = [name for name, sight in _others(change) if (since := sight.slot) is not None and since.counts(terms[0].nodes)]
    if len(under_way) < limit:
        return None
    return f"{len(under_way)} of {limit:g} were under way already: {', '.join(under_way[:5])} (granted by {terms[0].granter})"


def unavailable_limit_holds(change: NodeChange, world: World) -> str | None:
    """Admit nobody beyond maxUnavailable who was not out of service already when the node was granted."""
    terms = world.watch.ledger.terms(change.node, change.before)
    if not change.admits or not terms or change.history.was_out(change.node, terms[0].nodes):
        return None
    limit = max(each.unavailable for each in terms)
    out = [name for name, sight in _others(change) if _is_out(name, sight, terms[0], world)]
    if len(out) < limit:
        return None
    return f"{len(out)} of {limit} were out of service already: {', '.join(out[:5])} (granted by {terms[0].granter})"


def _others(change: NodeChange) -> list[tuple[str, Sight]]:
    sights = ((name, change.history.now(name)) for name in sorted(change.history.nodes()) if name != change.node)
    return [(name, sight) for name, sight in sights if sight is not None]


def _is_out(name: str, sight: Sight, terms: Terms, world: World) -> bool:
    if sight.out is None or not sight.out.counts(terms.nodes):
        return False
    return sight.in_progress or world.has_driver_pod(name, terms.pods)
