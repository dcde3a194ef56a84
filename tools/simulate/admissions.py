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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gpuward import names
from gpuward.model.policy import UpgradePolicy
from gpuward.model.views import NodeView
from gpuward.upgrade.ledger import read_grants, stamp
from tools.simulate.known import known_settings, leaves_drivers, turns_drivers_off, versions_of
from tools.simulate.patience import most_quarantined
from tools.simulate.policies import rack_of

if TYPE_CHECKING:
    from tools.simulate.history import Sight
    from tools.simulate.process import Knew, Process
    from tools.simulate.rules import NodeChange
    from tools.simulate.world import SimulatedWorld

Object = dict[str, Any]


class Terms(msgspec.Struct, frozen=True):
    """Hold the limits under which nodes were granted, and what the granter had been shown."""

    granter: str
    granters: tuple[Knew, ...]
    """What it may have gone by, as far as people's settings and words are concerned."""
    at: float
    """When they were granted."""
    nodes: int
    """Up to which version it knew the nodes."""
    pods: int
    by_owner: bool | None
    """Whether each NVIDIADriver has limits of its own; None where the granter may have known both."""
    domains: tuple[Object | None, ...]
    """The domains that may have been in force; empty ones for none, None for settings that cannot be followed."""
    limits: Mapping[str, tuple[float, int]]
    """maxParallelUpgrades and maxUnavailable, by NVIDIADriver, or of all under an empty name."""
    off: bool
    """Whether no node was to have a driver: one that has lost its own is not out of service, though its pod is still there."""

    def group(self, sight: Sight | None) -> str:
        """Return for whose limits a node counts."""
        return sight.owner if self.by_owner and sight is not None else ""


class Grant(msgspec.Struct, frozen=True):
    """Hold one entry of the ledger: the node's stamp, and the number of its terms."""

    stamp: str
    number: int


class GrantLedger:
    """Follow what the Lease grants."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._terms: list[Terms] = []
        self.awaited: list[Callable[[Sequence[str]], None]] = []
        """What the next grant sets off, before its writer hears of it."""

    def changed(self, lease: Object, writer: Process | None, world: SimulatedWorld) -> None:
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


def _terms(granter: Process, world: SimulatedWorld) -> Terms:
    history = world.watch.history
    found = [policy for policy in history.policies(granter) if policy is not None]
    modes = {leaves_drivers(policy) for policy in found}
    by_owner = modes.pop() if len(modes) == 1 else None
    groups = history.drivers() if by_owner else [""]
    settings = known_settings(granter, history)
    domains = tuple(None if each is None else each.get("domains") or {} for each in settings)
    beside = most_quarantined(settings, history.every_settings())
    limits = {name: _limits([each for each in versions_of(granter, history, name) if each is not None],
                            _total(name, granter, world), beside) for name in groups}
    known = granter.known
    off = bool(found) and all(map(turns_drivers_off, found))
    return Terms(granter.name, tuple(granter.lately()), world.now(), known["nodes"], known["pods"], by_owner, domains, limits,
                 off)


def _limits(policies: Sequence[UpgradePolicy], total: int, beside: int) -> tuple[float, int]:
    """Return the limits, with what may be quarantined `beside` them."""
    return (max((policy.max_parallel_upgrades or math.inf for policy in policies), default=0) + beside,
            max((policy.max_unavailable.of(total) for policy in policies), default=0) + beside)


def _total(group: str, granter: Process, world: SimulatedWorld) -> int:
    history = world.watch.history
    return sum(1 for node in history.nodes() if _may_be_managed(node, granter, world)
               and (not group or group in history.owners(node, granter)))


def _may_be_managed(node: str, granter: Process, world: SimulatedWorld) -> bool:
    history = world.watch.history
    view = history.view(node, granter)
    if view is None or not view.exists:
        return False
    known = history.may_be_wanted(node, granter) or bool(view.label or view.record)
    return known or world.has_driver_pod(node, granter.known["pods"])


# The rules.


def who_starts_is_in_the_ledger(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit no node that the Lease does not grant as it is, whoever leads."""
    if not change.admits or world.watch.ledger.terms(change.node, change.before):
        return None
    return f"{change.writer.name} starts it, and the Lease does not grant it as it is"


def parallel_limit_holds(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit nobody beyond maxParallelUpgrades, whoever admitted the others."""
    terms = world.watch.ledger.terms(change.node, change.before)
    if not change.admits or not terms:
        return None
    for group in _groups(change, terms[0]):
        limit = _widest(terms, change, group, 0)
        under_way = [name for name, sight in _others(change, terms, group)
                     if (since := sight.slot) is not None and since.counts(terms[0].nodes)]
        if len(under_way) < limit:
            return None
    return f"{len(under_way)} of {limit:g} were under way already: {', '.join(under_way[:5])} (granted by {terms[0].granter})"


def unavailable_limit_holds(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit nobody beyond maxUnavailable who was not out of service already when the node was granted."""
    terms = world.watch.ledger.terms(change.node, change.before)
    if not change.admits or not terms or change.history.was_out(change.node, terms[0].nodes):
        return None
    if world.watch.machines.was_without(change.node, terms[0].pods):
        return None
    for group in _groups(change, terms[0]):
        limit = _widest(terms, change, group, 1)
        out = [name for name, sight in _others(change, terms, group) if _is_out(name, sight, terms[0], world)]
        if len(out) < limit:
            return None
    return f"{len(out)} of {limit:g} were out of service already: {', '.join(out[:5])} (granted by {terms[0].granter})"


def domains_hold(change: NodeChange, world: SimulatedWorld) -> str | None:
    """Admit nobody of a domain of which as many are out of service as may be, or of one domain too many.

    Racks are labels that nobody edits, so that this needs no record of where a node was.
    """
    terms = world.watch.ledger.terms(change.node, change.before)
    if not change.admits or not terms or change.history.was_out(change.node, terms[0].nodes):
        return None
    if world.watch.machines.was_without(change.node, terms[0].pods) or None in terms[0].domains:
        return None
    wanted = [each for term in terms for each in term.domains if each is not None]
    if not wanted or any(not each for each in wanted):
        return None  # without domains for some that may have decided
    sights = ((name, change.history.now(name)) for name in sorted(change.history.nodes()) if name != change.node)
    others = {name: sight for name, sight in sights if sight is not None and not _is_nobodys(change, name, terms[0])}
    out = [name for name, sight in others.items() if _is_out(name, sight, terms[0], world)]
    own = rack_of(change.node)
    beside = [name for name in out if rack_of(name) == own]
    domains = {rack_of(name) for name in out}
    # A node that people work on begins its domain, though it serves still: in mode Whole that domain goes on.
    domains |= {own for name, sight in others.items() if sight.in_progress and rack_of(name) == own}
    if any(_has_room(each, own, len(beside), domains) for each in wanted):
        return None
    return f"of {own} were out of service already: {', '.join(beside[:5])}, in all {', '.join(out[:5])}, under {wanted}"


def _is_nobodys(change: NodeChange, name: str, terms: Terms) -> bool:
    """Tell whether a node was no NVIDIADriver's when another was granted: people had taken its owner label away a moment ago."""
    return bool(terms.by_owner) and not terms.group(change.history.at(name, terms.nodes))


def _has_room(domains: Object, own: str, beside: int, out: set[str]) -> bool:
    most = int(domains.get("max", 1))
    return beside < most if domains.get("mode", "Spread") == "Spread" else own in out or len(out) < most


def _groups(change: NodeChange, granted: Terms) -> list[str]:
    """Return for whose limits the node counted when it was granted: what the granter had not been shown yet may be its own doing,
    and whose label people took away since is nobody's fault.
    """
    seen = change.history.at(change.node, granted.nodes)
    groups = {granted.group(sight) for sight in (seen, *change.history.since(change.node, granted.nodes)) if sight is not None}
    return sorted(groups)


def _widest(terms: Sequence[Terms], change: NodeChange, group: str, which: int) -> float:
    """Return the widest limit of a group of nodes; none where drivers changed hands since the grant, and groups with them."""
    if len({each.by_owner for each in terms}) > 1 or terms[0].by_owner is None or change.before.owner != change.after.owner:
        return math.inf
    return max(each.limits.get(group, (0, 0))[which] for each in terms)


def _others(change: NodeChange, terms: Sequence[Terms], group: str) -> list[tuple[str, Sight]]:
    """Return the other nodes that count for the same limits, and did so when the node was granted."""
    sights = ((name, change.history.now(name)) for name in sorted(change.history.nodes()) if name != change.node)
    return [(name, sight) for name, sight in sights if sight is not None and terms[0].group(sight) == group
            and terms[0].group(change.history.at(name, terms[0].nodes)) == group]


def _is_out(name: str, sight: Sight, terms: Terms, world: SimulatedWorld) -> bool:
    managed = world.has_driver_pod(name, terms.pods)
    there = world.sandbox.store.find("nodes", None, name) is not None  # a node that is gone takes nothing away any more
    serves = world.has_stray_driver_pod(name) or not world.watch.machines.is_without(name, terms.pods)
    if there and managed and sight.wanted and not (serves or terms.off):
        return True
    if sight.out is None or not sight.out.counts(terms.nodes):
        return False
    return sight.in_progress or managed
