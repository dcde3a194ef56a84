"""Count the nodes of each domain, before any of them is admitted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set

from gpuward.model.domains import DomainMode, domains_of
from gpuward.model.driver import is_driver_pod
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Record, only_remembers
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView
from gpuward.upgrade.domains import NO_DOMAINS, DomainUse
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.fleet_gates import eviction_budget, failure_budget, image_not_staged, new_driver_fails
from gpuward.upgrade.gang_gate import gang_spared
from gpuward.upgrade.idle_gate import idle_awaited
from gpuward.upgrade.node_decision import NodeDecision
from gpuward.upgrade.notice_gate import held_by_notice
from gpuward.upgrade.undrainable import in_quarantine
from gpuward.upgrade.wave_gates import plan_differs, rollout_aborted, wave_waits

_GATES = (rollout_aborted, plan_differs, failure_budget, new_driver_fails, wave_waits, idle_awaited, gang_spared,
          image_not_staged, eviction_budget)
"""By which a node may be held for as long as nobody does something, whatever its domain does. A wave that soaks is one of these,
and a wait until a node is idle: they may take days, for which nothing of the domain is out of service.
"""
_SOON = frozenset({Reason.BUDGET_USED_UP, Reason.IMAGE_NOT_STAGED})
"""What of that is over by itself."""


def domain_use(
    snapshot: Snapshot, nodes: Sequence[NodeDecision], fleet: Fleet, policy: UpgradePolicy, granted: Set[str],
) -> DomainUse:
    """Return how the domains stand, by the nodes of a policy and by what the records of others say.

    A node whose last write has no answer yet counts as out of service, since that may have started it. But it has begun no
    domain that others of it could go on with, unless it was granted: the write may have labelled it only.
    """
    settings = policy.rollout.domains
    if settings is None:
        return NO_DOMAINS
    counted = [(judged, domains_of(judged.before.node, judged.before.record, settings.key))
               for judged in nodes if judged.standing.counts]
    out: defaultdict[str, set[str]] = defaultdict(set)
    sizes, pods = Counter[str](), Counter[str]()
    under_way: set[str] = set()
    for judged, domains in counted:
        name = judged.before.node.name
        sizes.update(domains)
        under_way.update(domains if name in fleet.in_progress and (judged.standing.in_progress or name in granted) else ())
        for domain in domains:
            if name in fleet.unavailable or name in fleet.quarantined:
                out[domain].add(name)
            if judged.waits:
                pods[domain] += judged.turn[4]
    stuck = fleet.stuck | fleet.quarantined
    for node in _disturbed_elsewhere(snapshot, {judged.before.node.name for judged in nodes}):
        record = node.record or Record(State.UNKNOWN)
        domains, kept = domains_of(node, record, settings.key), in_quarantine(record, policy)
        stuck |= {node.name} if kept else frozenset()
        under_way.update(domains if node.state in IN_PROGRESS and not kept else ())
        for domain in domains:
            out[domain].add(node.name)
    half_done = _half_done(counted, fleet, policy) if settings.mode is DomainMode.WHOLE else frozenset()
    return DomainUse(sizes, {domain: frozenset(found) for domain, found in out.items()}, frozenset(under_way), half_done,
                     pods, stuck)


def _disturbed_elsewhere(snapshot: Snapshot, own: set[str]) -> Iterator[NodeView]:
    """Yield the nodes of other policies that are out of service as far as their records, states and driver pods tell."""
    for name, node in snapshot.nodes.items():
        if name in own:
            continue
        away = node.unschedulable or not node.ready
        told = node.state in IN_PROGRESS or (away and node.record is not None and not only_remembers(node.record))
        if told or _waits_for_its_driver(snapshot, name):
            yield node


def _waits_for_its_driver(snapshot: Snapshot, node: str) -> bool:
    drivers = [pod for pod in snapshot.pods.get(node, ()) if is_driver_pod(pod, snapshot.namespace)]
    return bool(drivers) and not any(pod.ready for pod in drivers)


def _half_done(
    counted: Sequence[tuple[NodeDecision, tuple[str, ...]]], fleet: Fleet, policy: UpgradePolicy
) -> frozenset[str]:
    """Return the domains of which a node has the driver that another one waits for, and goes on to by itself."""
    begun = {(domain, judged.before.target) for judged, domains in counted if judged.before.driver_ready for domain in domains}
    return frozenset(
        domain for judged, domains in counted if judged.waits
        for domain in domains if (domain, judged.path.node.target) in begun and _goes_on(judged, fleet, policy)
    )


def _goes_on(judged: NodeDecision, fleet: Fleet, policy: UpgradePolicy) -> bool:
    """Tell whether a node that waits will start without anybody's help: others must not wait for one that never does."""
    if judged.hold is not None and not judged.hold.reason.ends_by_itself:
        return False
    holds = (gate(judged.path.node, fleet, policy) for gate in _GATES)
    if not all(hold is None or hold.reason in _SOON for hold in holds):
        return False
    hold = held_by_notice(judged.path.node, fleet, policy)
    return hold is None or hold.reason is not Reason.NOTICE_UNANSWERED
