"""The demo's story: a fleet in a sandbox gets its driver, and then another one, while workloads run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import msgspec

from gpuward import names
from gpuward.cli import logs
from gpuward.cli.tally import Tally
from gpuward.cli.targets import named_driver
from gpuward.cli.view import node_rows, some
from gpuward.controllers.operator import Operator, Outside, Settings
from gpuward.crd.generate import all_crds
from gpuward.errors import DemoFailed, NotFound
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.kube.http.stats import RequestKey
from gpuward.kube.lease.election import Candidate, Elector
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Plan
from gpuward.model.states import IN_PROGRESS, State
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.prometheus.client import PrometheusClient
from gpuward.report.nodes import node_reports
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE, fleet, operator_place, workloads
from gpuward.sandbox.images import any_image
from gpuward.sandbox.samples import IMAGES
from kubesandbox.store import Event
from kubesandbox.timeloop import LoopClock

STALL_LIMIT = 900.0
"""Seconds of the sandbox's time without any progress after which the demo gives up."""
QUIET_LIMIT = 330.0
"""The same in an upgrade in which no node has a deadline; a cluster evicts from dead nodes after 300 s."""
DEADLINE_LIMIT = 3600.0
"""The same where one has: longer than each deadline of the default policy."""
TROUBLE_LIMIT = 60.0
"""Seconds of the sandbox's time in which workloads that come with a fault are to run."""
REFUSAL_LIMIT = 30.0
"""The same, while the operator says that it cannot follow the policy."""
LOG_LINES = 20_000


class Options(msgspec.Struct, frozen=True):
    """Hold what the demo is asked for."""

    policy: Mapping[str, Any]
    nodes: int = 12
    max_parallel: int | None = None
    max_unavailable: str | None = None
    to_version: str = ""
    troubles: Mapping[str, tuple[str, ...]] = {}
    """The faults that come with the new version, by node."""
    has_image: Callable[[str], bool] = any_image
    """Tells which images exist."""


class Story:
    """Play the demo: `start`, `install`, `upgrade`. Whoever shows it is told of each plan, and which nodes
    were not written.
    """

    def __init__(self, options: Options, told: Callable[[Plan, frozenset[str]], None]) -> None:
        self.options = options
        self.clock = LoopClock()
        self.sandbox = Sandbox()
        self.sandbox.has_image = options.has_image
        self.tally = Tally()
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        logs.configure(self.log.append, self.clock.now)
        self.client = Client(self.sandbox.transport())
        self.operator = Operator(self.client, Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=0), self.clock,
                                 outside=Outside(prometheus=PrometheusClient()))
        self._told = told
        self.old_version = ""
        self.new_version = ""
        self.operator.upgrades.listeners.append(self._planned)
        self._work: asyncio.Future[Any] | None = None
        self._moved = 0.0
        self._seen: set[tuple[str, State | None]] = set()
        """The steps that nodes have taken, since the upgrade began."""
        self.still = 0.0
        """For how long nothing had moved when the demo ended with nodes left."""
        self.stuck = ""
        """How the ClusterPolicy stood then."""

    def _planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        self._told(self.plan, unwritten(seen.outcomes))
        self.tally.planned(self.plan, self.clock.now())

    @property
    def plan(self) -> Plan:
        """Return the operator's newest plan."""
        return self.operator.plan

    @property
    def policy_name(self) -> str:
        """Return the ClusterPolicy's name."""
        return str(self.options.policy["metadata"]["name"])

    @property
    def evicted(self) -> int:
        """Return the number of pods that the operator evicted."""
        return self.client.stats.requests[RequestKey("create", "pods/eviction", 201)]

    def limit(self) -> str:
        """Return how many nodes the policy lets be under way at once."""
        policy = self.operator.policies.read(self.operator.cluster.observe()).policy.upgrades
        limits = [policy.max_unavailable.of(self.options.nodes)]
        if policy.max_parallel_upgrades:
            limits.append(policy.max_parallel_upgrades)
        return str(min(limits)) if policy.max_parallel_upgrades or min(limits) < self.options.nodes else "none"

    async def start(self) -> None:
        """Start the sandbox with its fleet and workloads, the CRDs, the policy and the operator.

        Raises:
            ApiError: the policy is refused.
        """
        self.sandbox.store.subscribe(self._saw, "nodes")
        self.sandbox.store.subscribe(self._saw_pod, "pods")
        await self.sandbox.start()
        for node in fleet(self.options.nodes, 1):
            self.sandbox.add_node(node)
        for obj in (*operator_place(), *all_crds()):
            self.sandbox.apply(obj)
        users = Client(self.sandbox.transport())
        stored = await users.create(resources.CLUSTER_POLICIES, adjusted(self.options))
        self.old_version = stored.object()["spec"]["driver"].get("version") or IMAGES["DRIVER_IMAGE"].rpartition(":")[2]
        self.new_version = self.options.to_version or next_version(self.old_version)
        self._work = asyncio.gather(self.operator.run(), self._heartbeat())

    async def stop(self) -> None:
        """End the operator and the sandbox."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await self.sandbox.stop()

    async def _heartbeat(self) -> None:
        """Hold the Lease, by which `gpuward status` tells that an operator runs."""
        candidate = Candidate("gpuward-demo", names.DEFAULT_NAMESPACE)
        client = Client(self.sandbox.transport())
        await Elector(client, candidate, random=Random(0), wall=self.clock.now, changed=lambda leading: None).run()

    async def install(self) -> float:
        """Wait until the whole stack is ready, then let workloads come; return how long that took by the sandbox's clock.

        Raises:
            DemoFailed: the stack does not get ready.
        """
        begun = self._moved = self.clock.now()
        while not (await self._ready() and self._all_done()):
            await self._turn()
        seconds = self.clock.now() - begun
        for obj in self._workloads():
            self.sandbox.apply(obj)
        while not self._workloads_run():
            await self._turn()
        return seconds

    def _workloads(self) -> list[dict[str, Any]]:
        """Return what users run: as many GPU pods as find room elsewhere while one node is emptied."""
        nodes = self.options.nodes
        if nodes == 1:
            # They have nowhere to go, and come back when the node does.
            return workloads(inference=4, training=2, max_unavailable=4)
        pods = 2 if nodes == 2 else max(4, nodes // 2)
        return workloads(inference=pods, training=2, max_unavailable=max(1, pods // 4))

    def _workloads_run(self) -> bool:
        pods = self.sandbox.store.list("pods", WORKLOAD_NAMESPACE)
        return bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)

    async def upgrade(self) -> float | None:
        """Bring the faults about, change the driver's version and wait until every node has it.

        Returns how long that took, or None when nodes are left that do not get it: they failed, or nothing moves any more.

        Raises:
            DemoFailed: the demo cannot go on.
        """
        await self._bring_troubles()
        begun = self._moved = self.clock.now()
        self._seen.clear()
        self.tally.begin()
        named = named_driver((self.options.policy.get("spec") or {}).get("driver") or {}, IMAGES["DRIVER_IMAGE"])
        driver = named | {"version": self.new_version}
        await self.client.patch_merge(resources.CLUSTER_POLICIES, self.policy_name, {"spec": {"driver": driver}})
        while not (done := await self._all_upgraded()) and not self._ends():
            await self._turn(DEADLINE_LIMIT)
        self.tally.finish(self.clock.now())
        if not done:
            self.still, self.stuck = self.clock.now() - self._moved, await self._why()
            return None
        self._verify()
        return self.clock.now() - begun

    async def _all_upgraded(self) -> bool:
        return self.tally.done == self.options.nodes and self._all_done() and await self._ready()

    def _ends(self) -> bool:
        """Tell whether every node is done or has failed, or nothing new comes: no node has a deadline, or for very long."""
        failed = self._failed_once() if self.options.troubles else set(self.tally.failed)
        if failed and len(failed | self.tally.upgraded) == self.options.nodes:
            return True
        now = self.clock.now()
        # A node that has failed is tried again, for hours: that is nothing new. Nor is a write that is repeated before a start.
        waits = any(node.state in IN_PROGRESS and node.hold is not None and (node.hold.until or 0.0) > now
                    and (name, State.FAILED) not in self._seen for name, node in self.plan.nodes.items())
        return now - self._moved > (DEADLINE_LIMIT if waits else QUIET_LIMIT)

    async def _bring_troubles(self) -> None:
        """Let the faults begin, and the workloads that come with them run."""
        for node, faults in self.options.troubles.items():
            self.sandbox.trouble(node, *faults)
        end = self.clock.now() + TROUBLE_LIMIT
        if self.options.troubles:
            await asyncio.sleep(1.0)
        while self.options.troubles and not self._workloads_run() and self.clock.now() < end:
            await asyncio.sleep(1.0)

    def left(self) -> dict[str, str]:
        """Return the nodes that do not have the new driver, each with its state and what it waits for."""
        again = self._failed_once() - set(self.tally.failed)
        return {row.node: row.state + (", tried again after it failed" if row.node in again else "")
                + (f": {row.reason}" if row.reason else "")
                for row in node_rows(node_reports(self.plan), 0.0) if row.node not in self.tally.upgraded}

    def _failed_once(self) -> set[str]:
        return {name for name, state in self._seen if state is State.FAILED}

    def left_over(self) -> str:
        """Return which nodes are left, in one line."""
        left = list(self.left())
        if not left:
            return self.stuck
        are = "is" if len(left) == 1 else "are"
        return f"{len(left)} of {self.options.nodes} nodes {are} left without {self.new_version}: {some(left)}"

    async def _turn(self, limit: float = STALL_LIMIT) -> None:
        """Let a second pass, and give up when the operator ended or nothing has moved for so long.

        Raises:
            DemoFailed: the demo cannot go on.
        """
        if self._work is not None and self._work.done():
            raise DemoFailed(f"the operator ended: {self._work.exception()}")
        still = self.clock.now() - self._moved
        refused = still > REFUSAL_LIMIT and (await self._why()).startswith("ReconcileFailed")
        if refused or still > limit + 1:
            raise DemoFailed(f"no node has moved for {int(still)} s by the sandbox's clock: {await self._why()}")
        await asyncio.sleep(1.0)

    def _all_done(self) -> bool:
        return list(self.tally.states.values()).count(State.DONE) == self.options.nodes

    def _verify(self) -> None:
        """Make sure by the pods themselves that every node runs the new driver.

        Raises:
            DemoFailed: some node does not.
        """
        pods = self.sandbox.store.list("pods", names.DEFAULT_NAMESPACE)
        drivers = [pod for pod in pods if pod["metadata"]["labels"].get("app") == names.DRIVER_APP]
        old = [pod["spec"]["nodeName"] for pod in drivers if f":{self.new_version}-" not in pod["spec"]["containers"][0]["image"]]
        if old or len(drivers) != self.options.nodes:
            raise DemoFailed(f"{len(drivers) - len(old)} driver pods run {self.new_version}, not on: {some(old)}")

    def _saw(self, event: Event) -> None:
        state = self.tally.node_changed(event.obj) if event.type != "DELETED" else None
        step = event.obj["metadata"]["name"], state
        if state is not None and step not in self._seen:
            self._seen.add(step)
            self._moved = self.clock.now()

    def _saw_pod(self, event: Event) -> None:
        """Let `kubectl logs` of the operator's pod show the operator's own log."""
        meta = event.obj["metadata"]
        if event.type == "ADDED" and (meta.get("labels") or {}).get("app") == names.OPERATOR_NAME:
            self.sandbox.api.logs.sources[meta["namespace"], meta["name"]] = lambda: "".join(self.log)

    async def _policy_status(self) -> dict[str, Any]:
        """Return the status of the ClusterPolicy; with --keep somebody may have deleted it."""
        try:
            policy = await self.client.get(resources.CLUSTER_POLICIES, self.policy_name)
        except NotFound:
            return {}
        return dict(policy.object().get("status") or {})

    async def _ready(self) -> bool:
        return (await self._policy_status()).get("state") == "ready"

    async def _why(self) -> str:
        conditions = (await self._policy_status()).get("conditions") or ()
        holding = [condition for condition in conditions if condition["status"] == "True"]
        return f"{holding[0]['reason']}: {holding[0]['message']}" if holding else "there is no ClusterPolicy, or it has no status"


def unwritten(outcomes: Iterable[Outcome]) -> frozenset[str]:
    """Return the nodes whose step was not written: what a plan says of their state is not so."""
    return frozenset(each.action.node.name for each in outcomes
                     if isinstance(each.action, PatchNode) and (each.error or each.dropped or each.called_off))


def adjusted(options: Options) -> dict[str, Any]:
    """Return the policy with what the demo's options change in it."""
    policy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(options.policy))
    upgrades = policy.setdefault("spec", {}).setdefault("driver", {}).setdefault("upgradePolicy", {})
    upgrades["autoUpgrade"] = True
    if options.max_parallel is not None:
        upgrades["maxParallelUpgrades"] = options.max_parallel
    if options.max_unavailable is not None:
        upgrades["maxUnavailable"] = as_int_or_text(options.max_unavailable)
    return policy


def as_int_or_text(text: str) -> int | str:
    """Return what an option says as JSON has it: a number without quotes."""
    return int(text) if text.isascii() and text.isdigit() else text


def next_version(version: str) -> str:
    """Return a driver version with a higher last number: 595.91.07 becomes 595.91.08."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1:0{len(last)}d}" if last.isdigit() else f"{version}.1"
