"""Nodes that go from one policy to another: they are within the limits of both, where they come from and where they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType

import msgspec

from gpuward.model.domains import domains_of
from gpuward.model.placement import Placements
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS
from gpuward.model.views import Ref
from gpuward.model.waits import Undecided
from gpuward.model.waves import Aborted
from gpuward.upgrade.comers import goes_to, growth_limit_there, wave_limit_there, waves_there, windows_there
from gpuward.upgrade.domains import DomainUse
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.fleet import Fleet, Standing, Trouble
from gpuward.upgrade.fleet_gates import failure_budget, just_changed, max_parallel, max_unavailable, new_driver_fails
from gpuward.upgrade.forbidden import REFUSAL_COUNTS, Forbidden, forbidden_by_namespace
from gpuward.upgrade.gangs import GangUse
from gpuward.upgrade.scope import concerns
from gpuward.upgrade.undrainable import in_quarantine

_PERMITTING = (failure_budget, new_driver_fails, waves_there, windows_there)
_PERMITTING_GATES = (*_PERMITTING, just_changed)
_GATES = (*_PERMITTING, wave_limit_there, max_unavailable, max_parallel, growth_limit_there, just_changed)


class Fleets:
    """Hold the fleet of every policy while nodes of each are admitted, one after the other.

    `troubles` has what went wrong with those that have none. Those that are `counted` know of each other already.
    """

    def __init__(self, found: Iterable[tuple[UpgradePolicy, Fleet]], troubles: Mapping[str, str] = MappingProxyType({}),
                 *, counted: bool = False) -> None:
        self._troubles = dict(troubles)
        self._found = {policy.driver: (policy, fleet) for policy, fleet in found}
        if counted:
            return
        if len(self._found) > 1 and (claims := sum((Counter(fleet.claims) for _, fleet in self._found.values()), Counter())):
            self._set_claims(claims)
        if len(self._found) > 1 and (found_out := [one for _, fleet in self._found.values() for one in fleet.forbidden.values()]):
            self._set_forbidden(found_out)
        if len(self._found) > 1 and any(policy.rollout.domains is not None for policy, _ in self._found.values()):
            uses = {driver: fleet.domains for driver, (_, fleet) in self._found.items()}
            for driver, use in uses.items():
                self._set_domains(driver, use.with_others(other for name, other in uses.items() if name != driver))

        if len(self._found) > 1 and any(policy.rollout.gangs is not None for policy, _ in self._found.values()):
            known = {driver: fleet.gangs for driver, (_, fleet) in self._found.items()}
            for driver, gangs in known.items():
                self._set_gangs(driver, gangs.with_others(other for name, other in known.items() if name != driver))

    def copied(self) -> Fleets:
        """Return a copy, in which nodes are admitted on trial."""
        return Fleets(self._found.values(), self._troubles, counted=True)

    def of(self, policy: UpgradePolicy) -> Fleet:
        """Return a policy's fleet, with what was admitted so far."""
        return self._found[policy.driver][1]

    def whose_windows(self, node: NodeFacts, policy: UpgradePolicy) -> Fleet:
        """Return the fleet in whose windows a node starts: with waves that where it goes."""
        own = self.of(policy)
        there = self._destination(node, policy) if node.node.name in own.waves.leaving else None
        return own if there is None else msgspec.structs.replace(there[1], waves=there[1].waves_of_comers)

    def held_there(self, node: NodeFacts, policy: UpgradePolicy, *, granted: bool = False) -> Hold | None:
        """Return what holds a node of another policy back where it is moved to: those that come count as if they were there.

        One that is out of service already takes nothing away there either. A new driver that is in trouble there is tried on none
        that would come. A granted one has its place there already.
        """
        there = self._destination(node, policy)
        if there is None:
            return self._held_by_trouble_there(node, policy)
        limits, fleet = there
        name = frozenset({node.node.name})
        grown = msgspec.structs.replace(
            fleet,
            total=fleet.total + len(fleet.coming | name),
            unavailable=fleet.unavailable | (self.of(policy).unavailable & name),
            troubles=_troubles(node, fleet, limits),
            elsewhere=limits.driver,
        )
        word = limits.rollout.aborted if fleet.aborted else None
        if word is not None:
            return Hold(Aborted(word.by, word.at, limits.driver), node.record.since)
        gates = _PERMITTING_GATES if granted else _GATES
        return next((held for gate in gates if (held := gate(node, grown, limits)) is not None), None)

    def admit(self, node: NodeFacts, policy: UpgradePolicy, *, announced: bool = False) -> None:
        """Count one more node of a policy as under way, and where it goes; or keep a place for one that is given notice."""
        self._found[policy.driver] = policy, (fleet := self.of(policy).admitted(node, announced=announced))
        if len(self._found) > 1:
            self._set_claims(fleet.claims)
        there = self._destination(node, policy)
        if there is not None:
            limits, fleet = there
            name = frozenset({node.node.name})
            self._found[limits.driver] = limits, msgspec.structs.replace(
                fleet,
                coming=fleet.coming | name,
                in_progress=fleet.in_progress | name,
                unavailable=fleet.unavailable | name,
                announced=fleet.announced | (name - fleet.unavailable) if announced else fleet.announced,
            )
        settings = policy.rollout.domains
        if settings is not None:
            domains = domains_of(node.node, node.record, settings.key)
            for driver, (_, fleet) in self._found.items():
                self._set_domains(driver, fleet.domains.admitted(node.node.name, domains))

        if policy.rollout.gangs is not None:
            for driver, (_, fleet) in self._found.items():
                self._set_gangs(driver, fleet.gangs.admitted(node, fleet.now, announced=announced))

    def _held_by_trouble_there(self, node: NodeFacts, policy: UpgradePolicy) -> Hold | None:
        owner = _goes_elsewhere(node, policy)
        trouble = self._troubles.get(owner) if owner and owner not in self._found else None
        if trouble is None:
            return None
        return Hold(Undecided(f"NVIDIADriver {owner}, to which it goes: {trouble}"), node.record.since)

    def _set_claims(self, claims: Mapping[Ref, int]) -> None:
        """Let all know what pods of nodes under way claim of the budgets over them, whosever nodes these are."""
        self._found = {driver: (policy, msgspec.structs.replace(fleet, claims=claims))
                       for driver, (policy, fleet) in self._found.items()}

    def _set_forbidden(self, found: Sequence[Forbidden]) -> None:
        """Let all know where the operator has no right to evict pods, but for what was found out before theirs was resumed."""
        for driver, (policy, fleet) in self._found.items():
            counts = (one for one in found if one.until - REFUSAL_COUNTS > policy.rollout.resumed_at)
            self._found[driver] = policy, msgspec.structs.replace(fleet, forbidden=forbidden_by_namespace(counts, fleet.now))

    def _set_domains(self, driver: str, use: DomainUse) -> None:
        policy, fleet = self._found[driver]
        self._found[driver] = policy, msgspec.structs.replace(fleet, domains=use)

    def _set_gangs(self, driver: str, use: GangUse) -> None:
        policy, fleet = self._found[driver]
        self._found[driver] = policy, msgspec.structs.replace(fleet, gangs=use)

    def _destination(self, node: NodeFacts, policy: UpgradePolicy) -> tuple[UpgradePolicy, Fleet] | None:
        owner = _goes_elsewhere(node, policy)
        return self._found.get(owner) if owner else None


def _goes_elsewhere(node: NodeFacts, policy: UpgradePolicy) -> str:
    owner = goes_to(node)
    return owner if owner != policy.driver else ""


def _troubles(node: NodeFacts, there: Fleet, policy: UpgradePolicy) -> dict[str, Trouble]:
    """Return what a driver is in trouble with at the destination of a node, which does not know yet which it will get there."""
    since_resumed = [trouble for trouble in there.troubles.values() if trouble.since > policy.rollout.resumed_at]
    latest = max(since_resumed, key=lambda trouble: (trouble.since, trouble.node), default=None)
    return {} if latest is None else {node.target: latest}


def arriving(snapshot: Snapshot, policy: UpgradePolicy, granted: Set[str]) -> Iterator[Standing]:
    """Return how the nodes count that were admitted elsewhere, and are emptied there to come under a policy."""
    if not policy.driver or policy.placing is None:
        return
    begun = [node for node in snapshot.nodes.values() if not concerns(policy, node)
             and (node.state in IN_PROGRESS or node.name in granted or node.name in snapshot.unsettled)]
    if not begun:
        return
    placements = Placements(snapshot, policy.placing)
    for node in begun:
        moving = placements.moving(node, snapshot.pods.get(node.name, ()))
        if moving is not None and moving.owner == policy.driver:
            if node.record is not None and in_quarantine(node.record, policy):
                continue
            under_way = node.state in IN_PROGRESS
            yield Standing(node.name, coming=True, in_progress=under_way, unavailable=under_way or node.unschedulable)
