"""Look at a cluster as the operator does, and work out the same plan, with read rights only and changing nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

import msgspec

from gpuward.cli.connect import WallClock, check_access, unsupported
from gpuward.cli.leader import Leader, find_leader
from gpuward.cli.operators_word import remembered
from gpuward.cli.recall import refused_nodes, says_refused, unmade_pods
from gpuward.controllers.planning import Planner
from gpuward.controllers.podfilter import PodFilter
from gpuward.errors import GpuwardError, NotFound
from gpuward.kube.cluster import Cluster
from gpuward.kube.http.client import Client
from gpuward.kube.watcher import Watcher
from gpuward.model.denials import EvictionForbidden, RefusedElsewhere, ReplacementRefused, WriteRefused
from gpuward.model.plan import Hold, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Evicted, Refusal, Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.waits import ComesBack, EvictionRefused
from gpuward.policy.clusterpolicy import ActivePolicy
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.policy.pods import covers
from gpuward.upgrade.facts_cache import gather

_EMPTIED = frozenset({State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED})


class Picture(msgspec.Struct, frozen=True):
    """Hold a cluster at one moment, the policies in force and the plan that follows from both."""

    snapshot: Snapshot
    drivers: PoliciesInForce
    plan: Plan
    now: float
    """The time for which the plan is worked out."""
    unsupported: tuple[str, ...] = ()
    """What is in the cluster that NVIDIA's operator follows, and gpuward does not."""
    idle: bool = False
    """Whether no operator runs: then nobody carries the plan out."""
    unmade: Mapping[str, str] = {}
    """Why pods of DaemonSets are not made that are missing, by the DaemonSet's name."""

    @property
    def active(self) -> ActivePolicy:
        """Return the ClusterPolicy in force."""
        return self.drivers.policy

    @property
    def elsewhere(self) -> str:
        """Say where the operator of the ClusterPolicy works, if that is not the namespace that is looked at; else nothing."""
        view, looked = self.active.view, self.snapshot.namespace
        works = str((view.body.get("status") or {}).get("namespace") or "") if view is not None else ""
        if view is None or works in ("", looked):
            return ""
        return f"ClusterPolicy {view.name} is followed in namespace {works}, and this is about namespace {looked}: add -n {works}"

    def refuse_elsewhere(self) -> None:
        """Raise a GpuwardError where the operator works in another namespace: what would be told of this one is not true."""
        if self.elsewhere:
            raise GpuwardError(self.elsewhere)

    def upgrades(self, node: str) -> UpgradePolicy:
        """Return the upgrade policy that a node's driver is a matter of."""
        return self.drivers.upgrades_of(self.snapshot.nodes.get(node))


class Look:
    """Follow a cluster."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.reader = PolicyReader()
        self.cluster = Cluster(client, namespace, random=Random())
        self._pods = PodFilter(self.cluster, self.reader)
        self._refused: frozenset[str] = frozenset()
        self._unmade: Mapping[str, str] = {}
        self._unsupported: tuple[str, ...] = ()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[Watcher]:
        """Follow the cluster while the context lasts; yield an observer once all that matters is known.

        Raises:
            NotFound: the CRDs are not installed.
        """
        missing, self._unsupported = await asyncio.gather(check_access(self.client, self.namespace), unsupported(self.client))
        if missing:
            raise NotFound(f"{missing[0]} is not installed: gpuward crds | kubectl apply --server-side -f -")
        observer = self.cluster.watcher()
        async with asyncio.TaskGroup() as group:
            self.cluster.start(group)
            follow = group.create_task(self._pods.run(self.cluster.watcher(counts=False, fleet=False)))
            try:
                await self.cluster.synced()
                self.cluster.rollouts.recall()  # the operator follows it as long as the ClusterPolicy keeps it
                self.cluster.maintenances.look_at(self.cluster.rollouts.views())
                await self.cluster.synced()
                while not covers((snapshot := observer.observe()).followed, self.reader.read(snapshot).upgrades):
                    await observer.changed(0.05)
                yield observer
            finally:
                follow.cancel()
                self.cluster.stop()

    @property
    def knows_budgets(self) -> bool:
        """Tell whether disruption budgets may be read."""
        return self.cluster.budgets.synced.is_set()

    async def leader(self) -> Leader:
        """Ask whether an operator runs, and take up what it says that the cluster does not show."""
        leader = await find_leader(self.client, self.namespace, WallClock())
        await self._recall(leader.now)
        return leader

    async def _recall(self, now: float) -> None:
        """Take it that the nodes may not be changed now of which the operator says so: their plan is another one then."""
        snapshot = self.cluster.observe()
        told = says_refused(self.reader.read(snapshot).policy.view)
        refused = await refused_nodes(self.client, snapshot.nodes.values()) if told else {}
        for name in refused.keys() | self._refused:
            if (node := snapshot.nodes.get(name)) is not None:
                self.cluster.wrote(node.ref, now, refused.get(name, ""))
        self._refused = frozenset(refused)
        self._unmade = await unmade_pods(self.client, snapshot)

    def picture(self, leader: Leader) -> Picture:
        """Return the cluster as it is now.

        The plan is worked out for the cluster's time, not for this machine's, whose clock may be ahead: a deadline that has
        passed here only must not be shown as a failure there.
        """
        snapshot = self.cluster.observe()
        drivers = self.reader.read(snapshot)
        now = leader.now if self.client.date is not None else latest(snapshot)
        if leader.running is not False:
            snapshot = remembered(snapshot, drivers, now)
        for policy in drivers.upgrades:
            snapshot = foreseen(snapshot, policy, now)
        plan, idle = Planner().decide(snapshot, drivers.upgrades, now), leader.running is False
        seen = shown(plan, snapshot)
        return Picture(snapshot, drivers, unattended(seen, plan, snapshot) if idle else seen, now, self._unsupported, idle,
                       self._unmade)


def latest(snapshot: Snapshot) -> float:
    """Return the time of the last step that any node took, in Unix seconds."""
    return max((node.record.since for node in snapshot.nodes.values() if node.record), default=0.0)


def shown(plan: Plan, snapshot: Snapshot) -> Plan:
    """Return the plan with every node in the state that its label shows now, not the one that the plan would bring it to.

    How often the operator was refused an eviction, and when it repeats a refused write, only the operator knows.
    """
    plan = plan.as_labelled(snapshot.nodes)
    nodes = {name: msgspec.structs.replace(status, hold=_told(status.hold)) for name, status in plan.nodes.items()}
    return msgspec.structs.replace(plan, nodes=nodes)


def unattended(seen: Plan, planned: Plan, snapshot: Snapshot) -> Plan:
    """Return what is so already of a plan that nobody carries out: no time runs, and no node has started but by its label."""
    nodes = {}
    for name, status in seen.nodes.items():
        meant = status.hold is not None and (status.hold.reason.is_turn or planned.nodes[name].state is not status.state)
        hold = None if meant or status.hold is None else msgspec.structs.replace(status.hold, until=None)
        nodes[name] = msgspec.structs.replace(status, hold=hold, turn=0)
    states = Counter(status.state for status in nodes.values())
    skipped = sum(status.hold is not None and status.hold.reason is Reason.SKIPPED and status.state is State.UPGRADE_REQUIRED
                  for status in nodes.values())
    out = sum((node := snapshot.nodes.get(name)) is not None and (node.unschedulable or not node.ready) for name in nodes)
    counts = msgspec.structs.replace(
        seen.counts, in_progress=sum(count for state, count in states.items() if state in IN_PROGRESS), done=states[State.DONE],
        pending=states[State.UPGRADE_REQUIRED] - skipped, unavailable=out, available=0)
    return msgspec.structs.replace(seen, nodes=nodes, counts=counts, estimate=None)


def _told(hold: Hold | None) -> Hold | None:
    if hold is not None and isinstance(hold.what, EvictionRefused):
        return msgspec.structs.replace(hold, what=msgspec.structs.replace(hold.what, attempts=None))
    if hold is not None and isinstance(hold.what, ReplacementRefused):
        return msgspec.structs.replace(hold, what=msgspec.structs.replace(hold.what, attempts=None))
    if hold is not None and isinstance(hold.what, WriteRefused | RefusedElsewhere | EvictionForbidden):
        return msgspec.structs.replace(hold, until=None)
    if hold is not None and isinstance(hold.what, ComesBack):
        return msgspec.structs.replace(hold, what=msgspec.structs.replace(hold.what, times=None))
    return hold


def foreseen(snapshot: Snapshot, policy: UpgradePolicy, now: float) -> Snapshot:
    """Return the facts with what the operator must remember of evictions: its own memory of them cannot be read.

    A budget that lets no pod go now refuses every eviction under it. A pod that tolerates the cordon, and was made since its node
    is emptied, is one that has come back.
    """
    if not any(node.state in _EMPTIED for node in snapshot.nodes.values()):
        return snapshot
    tight = [budget for budget in snapshot.budgets if budget.allowed <= 0]
    refusals, evicted = dict(snapshot.refusals), {name: dict(owners) for name, owners in snapshot.evicted.items()}
    for node in gather(snapshot, policy):
        staying = [pod for pod in (*node.to_evict.pods, *node.to_drain.pods) if not pod.deleting]
        for pod in staying if node.state in _EMPTIED else ():
            if held := next((budget.ref for budget in tight if budget.covers(pod) and not budget.lets_go(pod)), None):
                refusals[pod.uid] = Refusal(now, 1, f"disruption budget {held} lets none go now")
            if pod.comes_back and pod.owner is not None and pod.created > node.record.since:
                evicted.setdefault(node.node.name, {})[pod.owner.uid] = Evicted(now, ())
    return msgspec.structs.replace(snapshot, refusals=refusals, evicted=evicted)
