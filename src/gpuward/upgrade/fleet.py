"""The fleet as admission sees it: who is out of service, and how many upgrades are under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf

import msgspec

from gpuward.model.budgets import BudgetView
from gpuward.model.denials import ReplacementRefused
from gpuward.model.listing import some_of
from gpuward.model.placement import placement_of
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.removal import NO_DRIVER
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, UNDISTURBED, State
from gpuward.model.troubles import PodTrouble
from gpuward.model.views import PodView, Ref
from gpuward.model.windows import OPEN, WindowState
from gpuward.upgrade.budget_coverage import Coverage
from gpuward.upgrade.domains import NO_DOMAINS, DomainUse
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.forbidden import REFUSAL_COUNTS, Forbidden, forbidden_by_namespace, forbidden_on
from gpuward.upgrade.gangs import NO_GANGS, GangUse
from gpuward.upgrade.in_use import running_under
from gpuward.upgrade.recovery import replacement_refusal, was_spared
from gpuward.upgrade.scope import concerns
from gpuward.upgrade.undrainable import is_quarantined
from gpuward.upgrade.validation_off import telling
from gpuward.upgrade.waves import NO_WAVES, Waves

Candidate = NodeFacts


@lru_cache(maxsize=16)
def some_nodes(nodes: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the first few nodes, worked out once for all that they hold."""
    return some_of(nodes)


class Trouble(msgspec.Struct, frozen=True):
    """Say on which node a driver is in trouble, since when the node was tried with it, and what is wrong."""

    target: str
    """The revision hash of the driver."""
    node: str
    since: float
    why: PodTrouble | str | ReplacementRefused
    until: float = inf
    """Until when it counts."""




class Fleet(msgspec.Struct, frozen=True):
    """Count the managed nodes. A node is unavailable once, whatever the number of reasons."""

    total: int = 0
    in_progress: frozenset[str] = frozenset()
    unavailable: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    """Those of them that stay so until somebody does something."""
    quarantined: frozenset[str] = frozenset()
    """Nodes that are cordoned, and use no slot."""
    now: float = 0.0
    failed: frozenset[str] = frozenset()
    """Nodes that failed in this rollout since it was last resumed, and did not succeed since; not for pods that came too late."""
    troubles: Mapping[str, Trouble] = {}
    """The first trouble since the rollout was resumed with each driver that is validated on no node yet, by its revision hash."""
    proven: frozenset[str] = frozenset()
    """The revision hashes of drivers that some node is up to date with."""
    targets: frozenset[str] = frozenset()
    """The revision hashes of drivers that some node should have."""
    serving: frozenset[str] = frozenset()
    """The drivers that serve some node, see `NodeFacts.which_driver`."""
    budgets: Mapping[str, tuple[BudgetView, ...]] = {}
    """Disruption budgets by namespace."""
    claims: Mapping[Ref, int] = {}
    """How many pods of nodes under way still have to go under each budget."""
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    coming: frozenset[str] = frozenset()
    """Nodes of other policies that are under way here; they are in the total of the one that they come from."""
    announced: frozenset[str] = frozenset()
    """Nodes in service for which a place is kept, as they were given notice; they are among those under way, and unavailable."""
    takes: float = 0.0
    """Seconds for which windows have to stay open for a node that starts."""
    windows: WindowState = OPEN
    wave_windows: Mapping[int, WindowState] = {}
    """Those of waves that have windows of their own, by the places of these waves."""
    domains: DomainUse = NO_DOMAINS
    gangs: GangUse = NO_GANGS
    waves: Waves = NO_WAVES
    waves_of_comers: Waves = NO_WAVES
    """The same with the nodes of other policies that are going to come, for these alone."""
    aborted: bool = False
    """Whether the rollout of a driver that nodes of it are to get was aborted."""
    differs: tuple[str, ...] = ()
    """In what the rollout differs from the one that somebody approved of."""
    forbidden: Mapping[str, Forbidden] = {}
    """By namespace, where the operator was found to have no right to evict pods."""
    unasked: bool = False
    """Whether a maintenance operator is to be asked, and cannot be."""
    elsewhere: str = ""
    """The NVIDIADriver whose fleet it is, where a node is held by another one than its own."""

    def admitted(self, node: NodeFacts, *, announced: bool = False) -> Fleet:
        """Return the fleet with one more node under way, or with one for which a place is kept."""
        name = frozenset({node.node.name})
        return msgspec.structs.replace(
            self,
            announced=self.announced | (name - self.unavailable) if announced else self.announced,
            in_progress=self.in_progress | name,
            unavailable=self.unavailable | name,
            claims=self.claims if node.restart_only else Counter(self.claims) + self._claims_of([node]),
        )

    def under(self, budgets: Sequence[BudgetView], nodes: Iterable[NodeFacts], coverage: Coverage | None = None) -> Fleet:
        """Return the fleet with disruption budgets, and with what its nodes under way claim of them."""
        coverage = coverage or Coverage()
        coverage.refresh(budgets)
        by_namespace: dict[str, tuple[BudgetView, ...]] = {}
        for budget in budgets:
            by_namespace[budget.namespace] = (*by_namespace.get(budget.namespace, ()), budget)
        known = msgspec.structs.replace(self, budgets=by_namespace, coverage=coverage)
        emptied = [node for node in nodes if node.node.name in self.in_progress and not node.restart_only]
        return msgspec.structs.replace(known, claims=known._claims_of(emptied))

    def budgets_of(self, pod: PodView) -> Sequence[BudgetView]:
        """Return the budgets that protect a pod: none where the eviction API lets it go in any case."""
        budgets = self.budgets.get(pod.namespace)
        return () if not budgets or pod.evicted_freely else self.coverage.of(pod, budgets)

    def windows_of(self, node: str) -> tuple[WindowState, str]:
        """Return the windows that hold for a node, and the name of its wave where that has windows of its own."""
        place = self.waves.places.get(node, -1)
        own = self.wave_windows.get(place)
        return (self.windows, "") if own is None else (own, self.waves.gates[place].wave.name)

    def _claims_of(self, nodes: Iterable[NodeFacts]) -> Counter[Ref]:
        going = (pod for node in nodes for pod in node.to_evict.pods)
        return Counter(budget.ref for pod in going for budget in self.budgets_of(pod) if not budget.lets_go(pod))


NOBODY = Fleet()
"""A fleet that holds nobody up, for gates that look at the node alone."""

Gate = Callable[[Candidate, Fleet, UpgradePolicy], Hold | None]


class Standing(msgspec.Struct, frozen=True):
    """Say how one node counts: as it is now, or will be after this pass's steps, whichever is worse.

    Writes to different nodes run side by side, and any of them may fail: what a node gives back is given out when its write is
    seen. Nodes in progress are out of service even before they are cordoned.
    """

    name: str
    counts: bool = True
    elsewhere: bool = False
    """Whether it is one of another policy's nodes by now, and in the total of that one, or nobody's."""
    coming: bool = False
    """Whether it will be one of this policy's nodes, and is another one's as yet."""
    in_progress: bool = False
    unavailable: bool = False
    stuck: bool = False
    """Whether it stays out of service until somebody does something."""
    quarantined: float = 0.0
    """Since when it is quarantined; 0 where it is not."""
    spared: bool = False
    """Whether it uses no slot therefore."""
    failed: bool = False
    proven: str = ""
    """The revision hash of the driver that is loaded and validated on the node, if it is the one that it should have."""
    target: str = ""
    """The revision hash of the driver that it should have; empty where that is not known."""
    serving: str = ""
    """The driver that is loaded, whether it should be or not."""
    trouble: Trouble | None = None
    forbidden: tuple[Forbidden, ...] = ()

    @property
    def in_total(self) -> bool:
        """Tell whether it is one of the policy's nodes."""
        return self.counts and not (self.elsewhere or self.coming)


def standing(before: NodeFacts, after: NodeFacts, policy: UpgradePolicy) -> Standing:
    """Return how a node counts; one that has left every driver DaemonSet, and is to have none, is in no total. It is under way
    until its label says otherwise: it may be cordoned, and its driver have gone.
    """
    name, sides = before.node.name, (before, after)
    # One that still offers GPUs is its policy's matter until it has our cordon no more.
    offered = before.device_plugin_going is not None and before.unschedulable and before.record.cordon is CordonOwner.GPUWARD
    if (gone := before.left and before.unserved is None and not offered) and before.state not in IN_PROGRESS:
        return Standing(name, counts=False)
    in_progress = any(node.state in IN_PROGRESS for node in sides)
    given_up = after.record.given_up if all(is_quarantined(node, policy) for node in sides) else None
    return Standing(
        name,
        elsewhere=gone and before.record.target != NO_DRIVER,
        in_progress=in_progress,
        unavailable=in_progress or not before.node.ready or not before.serves or any(node.unschedulable for node in sides),
        quarantined=given_up.at if given_up is not None else 0.0,
        failed=any(_failed(node, policy.rollout.resumed_at) for node in sides),
        proven=before.target if before.up_to_date else "",
        target=before.target,
        serving=before.which_driver if before.loaded else "",
        trouble=_unforgiven(_trouble(after), policy),
        forbidden=forbidden_on(after, policy.rollout.resumed_at),
    )


def _trouble(node: NodeFacts) -> Trouble | None:
    """Return what is wrong with the driver that the node got, or should have got when it failed."""
    failure, driver = telling(node.node, node.record.failure), node.driver
    if (refusal := replacement_refusal(node)) is not None and driver is not None and node.untouched and not node.in_step:
        return Trouble(node.target, node.node.name, node.record.started,
                       ReplacementRefused(driver.ref, refusal.message, refusal.count), refusal.at + REFUSAL_COUNTS)
    if failure is not None and failure.concerns_driver and not (
            failure.state in UNDISTURBED or was_spared(node, failure.state) or node.retargeted):
        begun = failure.begun or failure.first or failure.at
        return Trouble(node.target, node.node.name, max(begun, node.target_since), failure.cause)
    if driver is None or not node.in_step or not node.trouble or running_under(node):
        return None
    since = node.record.started if node.state in IN_PROGRESS else driver.created
    return Trouble(node.target, node.node.name, max(since, node.target_since), node.trouble)


def _found_there(node: str, target: str, failure: Failure | None) -> Trouble | None:
    if failure is None or not failure.concerns_driver:
        return None
    return Trouble(target, node, failure.begun or failure.at, failure.cause)


def _unforgiven(trouble: Trouble | None, policy: UpgradePolicy) -> Trouble | None:
    return trouble if trouble is not None and trouble.since > policy.rollout.resumed_at else None


def _failed(node: NodeFacts, forgiven: float) -> bool:
    return _counts(telling(node.node, node.record.failure), forgiven) and not node.retargeted


def _counts(failure: Failure | None, forgiven: float) -> bool:
    """Tell whether a failure counts against the rollout's budget: not where others than the rollout's people brought it about."""
    return failure is not None and failure.at > forgiven and not failure.intruded


def moved_away(snapshot: Snapshot, policy: UpgradePolicy) -> Iterator[Standing]:
    """Return how the nodes count that were admitted here and moved to another NVIDIADriver since, until their upgrade is over."""
    if not policy.driver:
        return
    for node in snapshot.nodes.values():
        record = node.record
        if record is None or record.driver != policy.driver or concerns(policy, node):
            continue
        if (under_way := node.state in IN_PROGRESS) or node.state in (State.FAILED, State.UPGRADE_REQUIRED):
            failure, target = telling(node, record.failure), str(placement_of(node.labels))
            yield Standing(
                node.name,
                elsewhere=True,
                in_progress=under_way,
                unavailable=under_way or node.unschedulable or not node.ready,
                failed=_counts(failure, policy.rollout.resumed_at),
                trouble=_unforgiven(_found_there(node.name, target, failure), policy),
            )


def fleet_of(
    standings: Iterable[Standing], unsettled: frozenset[str], now: float = 0.0, windows: WindowState = OPEN,
    waves: Waves = NO_WAVES,
) -> Fleet:
    """Count the fleet. A node whose last write has no known outcome may have been admitted by it, from any state: it counts."""
    known = [node for node in standings if node.counts]
    doubtful = unsettled & {node.name for node in known} if unsettled else unsettled
    in_progress = frozenset(node.name for node in known if node.in_progress) | doubtful
    return Fleet(
        total=sum(node.in_total for node in known),
        coming=frozenset(node.name for node in known if node.coming),
        in_progress=in_progress,
        unavailable=in_progress | {node.name for node in known if node.unavailable},
        quarantined=frozenset(node.name for node in known if node.spared),
        stuck=frozenset(node.name for node in known if node.stuck) - in_progress,
        now=now,
        windows=windows,
        waves=waves,
        failed=frozenset(node.name for node in known if node.failed),
        troubles=_troubles(known, now),
        proven=frozenset(node.proven for node in known),
        targets=frozenset(node.target for node in known if node.target),
        serving=frozenset(node.serving for node in known if node.serving),
        forbidden=forbidden_by_namespace((one for node in known for one in node.forbidden), now),
    )


def _troubles(standings: Iterable[Standing], now: float) -> dict[str, Trouble]:
    standings = tuple(standings)
    current = (each.trouble for each in standings if each.trouble is not None and now < each.trouble.until)
    found = sorted(current, key=lambda one: (one.since, one.node))
    if not found:
        return {}
    proven = {each.proven for each in standings}
    return {trouble.target: trouble for trouble in reversed(found) if trouble.target and trouble.target not in proven}
