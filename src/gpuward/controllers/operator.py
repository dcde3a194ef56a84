"""The operator: one cluster to follow, three loops over it, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec
import structlog

from gpuward import names
from gpuward.controllers.absences import AbsenceEvents
from gpuward.controllers.analysis import Measure, Measuring, WaveChecks
from gpuward.controllers.clusterpolicy import ClusterPolicyController, ClusterPolicyLog
from gpuward.controllers.driverimages import ImageQuestions
from gpuward.controllers.holds import HoldEvents
from gpuward.controllers.labels import LabelController, LabelLog
from gpuward.controllers.loop import SLOW, Loop, Shared
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.nvidiadriver import NVIDIADriverController, NVIDIADriverLog
from gpuward.controllers.podfilter import PodFilter
from gpuward.controllers.policyevents import PolicyEvents
from gpuward.controllers.references import FollowedLater, ReferencedObjects
from gpuward.controllers.rolloutpolicy import RolloutPolicyController, RolloutPolicyLog
from gpuward.controllers.unknownworkloads import UnknownWorkloadEvents
from gpuward.controllers.upgrade import UpgradeController, UpgradeLog
from gpuward.errors import Forbidden, GpuwardError, NotFound
from gpuward.execute.executor import ApiExecutor
from gpuward.execute.world import World
from gpuward.kube.cluster import Cluster
from gpuward.kube.endless import endless
from gpuward.kube.events import NORMAL, WARNING, About, EventRecorder
from gpuward.kube.http.client import Client
from gpuward.kube.http.servertime import ServerClock
from gpuward.kube.lease.election import Candidate
from gpuward.kube.lease.ledger import LeaseLedger
from gpuward.kube.lease.takeover import Takeover
from gpuward.kube.resources import GVR, KINDS, NVIDIA_DRIVERS, POD_DISRUPTION_BUDGETS, RESOURCE_CLAIMS, ROLLOUT_POLICIES
from gpuward.kube.watcher import Watcher
from gpuward.model.actions import PatchAnnotations
from gpuward.model.driver_images import DriverImages
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.views import NodeView, Ref
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.ports import Clock, Prometheus, Registry

NOT_INSTALLED = {
    ROLLOUT_POLICIES: "gpuward's own settings have their defaults",
    NVIDIA_DRIVERS: "drivers are the ClusterPolicy's",
    RESOURCE_CLAIMS: "pods with a claim count as users of GPUs",
}
"""What it means that an optional kind is not there."""
NOT_NEEDED = {POD_DISRUPTION_BUDGETS, RESOURCE_CLAIMS, ROLLOUT_POLICIES}
"""What may be forbidden: the log of ClusterPolicies says so, once for all that is."""


class Settings(msgspec.Struct, frozen=True):
    """Hold what an operator process is told from outside."""

    namespace: str = names.DEFAULT_NAMESPACE
    images: Mapping[str, str] = {}
    """Variables that name images: DRIVER_MANAGER_IMAGE, VALIDATOR_IMAGE, ..."""
    seed: int | None = None


class Outside(NamedTuple):
    """Hold what is asked beside the cluster; None for what is not."""

    registry: Registry | None = None
    prometheus: Prometheus | None = None
    measure: Measure | None = None
    """Stands for any measuring."""


NOTHING_OUTSIDE = Outside()


class Operator:
    """Keep one cluster's GPU stack and upgrade its drivers.

    `acting` tells whether this process leads; one that does not only looks on. One that stands for election as `candidate` enters
    nodes into the ledger of admissions before it starts them; without a candidate nobody else may write to the cluster meanwhile.
    """

    def __init__(
        self, client: Client, settings: Settings, clock: Clock, acting: Callable[[], bool] = lambda: True,
        candidate: Candidate | None = None, outside: Outside = NOTHING_OUTSIDE,
    ) -> None:
        random = Random(settings.seed)
        clock = ServerClock(clock)
        client.heard = clock.heard
        self._acting, self.clock = acting, clock
        self._led = False
        self.metrics = Metrics(self.leads, client.stats)
        self.policies = PolicyReader(clock.now)
        self.cluster = Cluster(client, settings.namespace, random=random, report=self._report,
                               log=structlog.get_logger(source="rolloutpolicy"))
        clock.moved = self.cluster.touch
        self.events = EventRecorder(client, now=clock.now, random=random, report=self._report_events)
        self._pods = PodFilter(self.cluster, self.policies, structlog.get_logger(source="controllers.Upgrade"))
        later = FollowedLater(self.cluster.follow_monitors, self.cluster.follow_place)
        self._references = ReferencedObjects(
            client, settings.namespace, self.policies, clock, later, self.cluster.refer)
        registry = outside.registry
        self._images = ImageQuestions(
            client, settings.namespace, registry, clock, self.cluster.find_images) if registry is not None else None
        if self._images is not None:
            self.cluster.find_images(DriverImages())
        measure = outside.measure or Measuring(client, settings.namespace, outside.prometheus)
        self._checks = WaveChecks(measure, clock, self.leads, self.cluster.measure)
        self.ledger = LeaseLedger(client, self.cluster, candidate) if candidate else None
        self._beginning = self.ledger or Takeover(self.cluster)
        world = World(self.cluster, Events(self.events), clock, self.ledger, acting=acting)
        self.executor = ApiExecutor(world)
        self.plan = Plan()
        """What the last pass of the upgrade decided."""
        shared = Shared(self.policies.read, self.executor, clock, self.leads, self.cluster.late, self.metrics.passed)
        policies, watcher = ClusterPolicyController(settings.images), self.cluster.watcher()
        policy_events = PolicyEvents(self.events)
        self.upgrades = Loop(
            UpgradeController(), self.cluster.watcher(counts=False), shared,
            self._planned, HoldEvents(self.events), policy_events, self.metrics.planned, UpgradeLog(),
            self._checks.planned,
            policies.follow, lambda _: watcher.wake(),
        )
        """The loop of the upgrade; whoever wants to know of its passes is one of its listeners."""
        self.upgrades.alarms.append(policy_events.due)
        absences = AbsenceEvents(self.events)
        self.operands = Loop(policies, watcher, shared, ClusterPolicyLog(), absences.applied,
                             UnknownWorkloadEvents(self.events), self.metrics.applied, pace=SLOW)
        drivers = NVIDIADriverController(settings.images)
        self.drivers = Loop(drivers, self.cluster.watcher(), shared, NVIDIADriverLog(), absences.driven, pace=SLOW)
        labels = LabelLog(partial(_warn, self.events), world.contested.rival)
        self.labels = Loop(LabelController(), self.cluster.watcher(), shared, labels, pace=SLOW)
        self.rollouts = Loop(RolloutPolicyController(), self.cluster.watcher(), shared, RolloutPolicyLog(), pace=SLOW)
        self._loops: list[Loop[Any]] = [
            self.operands,
            self.drivers,
            self.labels,
            self.rollouts,
            self.upgrades,
        ]
        self._log = structlog.get_logger(source="setup")
        self.alive = False

    @property
    def ready(self) -> bool:
        """Tell whether the cluster has been listed."""
        return self.alive and self.cluster.is_synced

    def leads(self) -> bool:
        """Tell whether this process decides and acts."""
        leads = self._acting() and self._beginning.known
        if leads and not self._led:
            self.cluster.watched_since = self.clock.now()
            self.cluster.rollouts.recall()
            self.cluster.maintenances.look_at(self.cluster.rollouts.views())
            self.cluster.touch()
        self._led = leads
        return leads

    def turned(self) -> None:
        """Forget what is known for who acts only: that has changed."""
        self.metrics.forget()
        self._beginning.forget()

    async def run(self) -> None:
        """Run until cancelled. Raises what ends any of its tasks, errors.EndedByItself for one that just stops."""
        self.alive = True
        try:
            async with asyncio.TaskGroup() as group:
                self.cluster.start(group)
                group.create_task(endless("the events", self.events.run), name="events")
                await self.cluster.synced()
                self._log.info("Listed the cluster", nodes=len(self.cluster.nodes), pods=len(self.cluster.pods))
                for name, work in self._works():
                    group.create_task(endless(f"the task {name!r}", work), name=name)
        finally:
            self.alive = False

    def _planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        self.plan = seen.decision or self.plan
        if seen.decision is not None:
            self.cluster.untaken.notes_are(f"{action.kind} {action.ref.name}" for action in seen.decision.actions
                                           if isinstance(action, PatchAnnotations))

    def _of_policies(self) -> Watcher:
        """Return an Observer for what nodes and pods tell nothing new."""
        return self.cluster.watcher(counts=False, fleet=False)

    def _works(self) -> Iterable[tuple[str, Callable[[], Awaitable[None]]]]:
        yield "pods", partial(self._pods.run, self._of_policies())
        yield "references", partial(self._references.run, self._of_policies())
        if self._images is not None:
            yield "images", partial(self._images.run, self.cluster.watcher())
        yield "analysis", partial(self._checks.run, self.cluster.watcher())
        yield "ledger" if self.ledger else "takeover", partial(self._beginning.run, self._acting)
        for loop in self._loops:
            yield loop.controller.name, loop.run

    def _report(self, resource: GVR, error: GpuwardError | None) -> None:
        if error is None:
            self._log.info("Watching a resource again", resource=str(resource))
        elif resource in NOT_NEEDED and isinstance(error, Forbidden):
            self._log.debug("May not watch a resource", resource=str(resource))
        elif resource in NOT_INSTALLED and isinstance(error, NotFound):
            self._log.info(f"Not installed: {NOT_INSTALLED[resource]}", resource=str(resource))
        else:
            self._log.warning("Cannot watch a resource", resource=str(resource), error=str(error))

    def _report_events(self, error: GpuwardError | None) -> None:
        if error is None:
            self._log.info("Writing events again")
        else:
            self._log.warning("Cannot write events", error=str(error))


def _warn(events: EventRecorder, node: NodeView, message: str) -> None:
    """Report an event about what is wrong with a node."""
    events.record(About("v1", "Node", node.name, node.uid), WARNING, names.HELD_EVENT_REASON, message)


class Events:
    """Put the events of actions on the recorder, each as one of its own."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def event(self, kind: str, ref: Ref, message: str, *, warning: bool = False) -> None:
        """Report an event about a core object, or one of a kind of ours, with NVIDIA's reason for driver upgrades."""
        version = next((version for version, known in KINDS if known == kind), "v1")
        about = About(version, kind, ref.name, ref.uid, ref.namespace)
        level = WARNING if warning else NORMAL
        self._recorder.record(about, level, names.DRIVER_EVENT_REASON, message, alone=True)
