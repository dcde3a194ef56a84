"""The rollout that is disturbed: one that meets nearly everything, in a few minutes of virtual time.

Seven GPU nodes, two of which may be under way at once: three with workloads (two of them behind budgets that refuse for a while,
two that share a budget; a stray pod comes to one that is being emptied), one under an administrator's cordon, one idle, one whose
new driver crashes at first, one skipped.
The rollout is paused and resumed in the middle; a second one is taken back when it is half done.
Where drivers come from is in `setups`; with two NVIDIADrivers each has limits of its own for its pool of nodes.
Users act on what the cluster shows, never at a time, so that whatever delays the operator changes nothing but times.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from gpuward import names
from gpuward.cli import logs
from gpuward.controllers.operator import Operator
from gpuward.kube.http.client import Client
from gpuward.kube.lease.rules import new_lease
from gpuward.kube.resources import CLUSTER_POLICIES, LEASES, NVIDIA_DRIVERS
from gpuward.model.states import IN_PROGRESS, State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from kubesandbox.timeloop import EPOCH
from tests.journeys.stage import Object, Proceed, Stage
from tests.reliability.picture import Picture, event_text, take
from tests.reliability.setups import NODES, SETUPS, Limits

WORKLOADS = (("late-1", "gpu-1"), ("late-2", "gpu-2"), ("shared-2", "gpu-2"),
             ("shared-3", "gpu-3"), ("free-3", "gpu-3"), ("spare-3", "gpu-3"))
"""What runs where: one pod, two, and three, so that the nodes' order is the same whichever pod is the youngest."""
SHARED_BUDGET = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "shared", "namespace": "ml"},
                 "spec": {"maxUnavailable": 1, "selector": {"matchExpressions": [
                     {"key": "app", "operator": "In", "values": ["shared-2", "shared-3"]}]}}}
STRAY_STAYS = Fault(FaultKind.STUCK_TERMINATING, pod="stray")
UNNEEDED = ("dcgm", "dcgmExporter", "gfd", "nodeStatusExporter", "migManager")
AWAY_SECONDS = 1.0
"""How long no operator runs after one was killed."""
REST_SECONDS = 30.0
"""How long nothing has to change before a picture is taken."""

Hook = Callable[[str], None]


def _nothing(moment: str) -> None:
    """Disturb nothing."""


class Scene(Stage):
    """Play the rollout, one operator process after the other, and look at each of their writes."""

    def __init__(self, mode: str = "clusterpolicy") -> None:
        self._process = 0
        self.setup = SETUPS[mode]
        _, self.new, self.third = self.setup.versions
        upgrade = next(iter(self.setup.governors.values())).policy
        super().__init__(len(NODES), upgrade=upgrade, objects=[self.setup.settings, *self.setup.drivers()])
        self.hook: Hook = _nothing
        """Called before and after each write of the operator."""
        self.reads: Callable[[Request, Proceed], Answer | Stream] = lambda request, proceed: proceed()
        """What stands between the operator and the server where it reads."""
        self.writes = 0
        self.pictures: list[Picture] = []
        self.developed: Callable[[], None] = lambda: None
        """Called after each picture."""
        self.calm_at = 0.0
        """No picture is taken before: what was done to the operator is not over."""
        self.told: list[tuple[float, str]] = []
        """When each event was told."""
        self.evicted: Counter[str] = Counter()
        """Evictions that the server carried out, by the app and the uid of the pod."""
        self.asked_again = 0
        """Evictions of pods that were ending already: the server accepts them, and they change nothing."""
        self.broken: list[str] = []
        """Rules that a write has broken."""
        self.crash = Fault(FaultKind.DRIVER_CRASH, node="gpu-6", image=f"*{self.new}*")
        self._rolls = False
        """Whether the rollout has begun, so that limits count."""
        self._tight: set[str] = set()
        self._strayed = False
        self._telling = False
        self._ended_tasks: list[asyncio.Task[None]] = []
        self.transport.interfere = self._between(0)

    # The cluster.

    def _nodes(self) -> list[Object]:
        nodes = super()._nodes()
        for node in nodes:
            if node["metadata"]["name"] in NODES:
                self.setup.furnish(node)
        return nodes

    def _policy(self) -> Object:
        policy = super()._policy()
        self.setup.first(policy)
        return policy

    def policy_states(self) -> dict[str, tuple[str, str]]:
        """Return state and reason of everything that says which driver is wanted, and of the ClusterPolicy."""
        found = [*self.sandbox.store.list("clusterpolicies.nvidia.com"), *self.sandbox.store.list("nvidiadrivers.nvidia.com")]
        return {obj["metadata"]["name"]: _state(obj.get("status") or {}) for obj in found}

    # Processes.

    def _operator(self) -> Operator:
        """Return an operator that leads and keeps the ledger of admissions, as one does with --leader-elect."""
        return self.new_operator(identity=f"process-{self._process}")

    def _elect(self) -> None:
        lease = self.sandbox.store.find(str(LEASES), names.DEFAULT_NAMESPACE, names.LEADER_LEASE)
        held = {**(lease or new_lease(names.DEFAULT_NAMESPACE)), "spec": {"holderIdentity": f"process-{self._process}"}}
        self.sandbox.apply(held)

    def kill(self) -> None:
        """End the operator at this very instruction, and start another one soon that knows nothing of it."""
        self._process += 1
        if self._work is not None:
            self._work.cancel()
            self._ended_tasks.append(self._work)
        self._work = None
        asyncio.get_running_loop().call_later(AWAY_SECONDS, self._begin_another)
        self.disturb(AWAY_SECONDS)

    def disturb(self, seconds: float) -> None:
        """Let it be known that the operator is disturbed for so long."""
        self.calm_at = self.clock.now() + seconds + REST_SECONDS

    def _begin_another(self) -> None:
        self.transport = self.sandbox.transport()
        self.transport.interfere = self._between(self._process)
        self.client = Client(self.transport)
        self.operator = self._operator()
        self._elect()
        self.begin_operator()

    def _between(self, process: int) -> Callable[[Request, Proceed], Answer | Stream]:
        def alive() -> None:
            if process != self._process:
                raise asyncio.CancelledError("this process is dead")

        def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
            alive()
            if request.method == "GET":
                return self.reads(request, proceed)
            self.writes += 1
            self.hook(f"before write {self.writes}")
            alive()
            answer = self._write(request, proceed)
            if self._telling and isinstance(answer, Answer):
                self._tell(f"{request.method} {request.path} {answer.status} {request.body.decode()[:400]}")
            self.hook(f"after write {self.writes}")
            alive()
            return answer

        return interfere

    def tell(self) -> None:
        """Tell on stderr from now on what the operator writes and logs."""
        self._telling = True
        logs.configure(lambda line: self._tell(line.strip()), self.clock.now)

    def _tell(self, text: str) -> None:
        print(f"{self.clock.now() - EPOCH:9.3f} {text}", file=sys.stderr)  # noqa: T201 it is asked for

    # What no write may do.

    def _write(self, request: Request, proceed: Proceed) -> Answer | Stream:
        place = request.path.split("/")
        pod = None
        if "pods" in place:
            pod = self.sandbox.store.find("pods", place[4], place[6])
        answer = proceed()
        if pod is not None and isinstance(answer, Answer) and answer.status < 300:
            self._inspect(request, pod)
        return answer

    def _inspect(self, request: Request, pod: dict[str, Any]) -> None:
        app, node = pod["metadata"]["labels"].get("app", ""), pod["spec"].get("nodeName", "")
        if request.path.endswith("/eviction"):
            if pod["metadata"].get("deletionTimestamp"):
                self.asked_again += 1
                return
            self.evicted[f"{app}/{pod['metadata']['uid']}"] += 1
            if not self.cordoned(node):
                self.broken.append(f"{app} was evicted from {node}, which takes new pods")
        elif app == names.DRIVER_APP or pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT:
            users = [one["metadata"]["name"] for one in self.workload_pods(node=node)]
            if users:
                self.broken.append(f"the driver of {node} was deleted under {users}")
            if not self.cordoned(node):
                self.broken.append(f"the driver of {node} was deleted, which takes new pods")

    def _saw_node(self, event: Event) -> None:
        super()._saw_node(event)
        for name, limits in self.setup.governors.items() if self._rolls else ():
            self._check(name, limits)

    def _check(self, name: str, limits: Limits) -> None:
        """Hold the nodes that one policy governs against its limits."""
        seen = [self._now[node] for node in limits.nodes if node in self._now]
        under_way = sum(moment.state in IN_PROGRESS for moment in seen)
        out = sum(moment.state in IN_PROGRESS or moment.cordoned or not moment.ready for moment in seen)
        if under_way > limits.parallel:
            self.broken.append(f"{under_way} nodes of {name} were under way at once")
        if out > limits.unavailable:
            self.broken.append(f"{out} nodes of {name} were out of service at once")

    def verdict(self) -> list[str]:
        """Return the rules that were broken at any moment so far."""
        broken = list(dict.fromkeys(self.broken))
        broken += [f"a pass failed: {line}" for line in self.warnings("A pass failed")]
        return broken

    # The rollout.

    async def prepare(self) -> None:
        """Install the stack and let workloads run."""
        self._elect()
        for component in UNNEEDED:
            await self.patch_policy(f"{component}/enabled", False)
        await self.label("gpu-7", names.UPGRADE_SKIP, "true")
        await self.installed()
        for app, node in WORKLOADS:
            await self.deploy(app, node=node)
        self.sandbox.apply(SHARED_BUDGET)
        await self.cordon("gpu-4")
        self.sandbox.store.subscribe(self._tighten, "nodes")
        self.sandbox.store.subscribe(self._listen, "events")
        await self.rest(REST_SECONDS)

    def _tighten(self, event: Event) -> None:
        """Let users protect a pod in the very moment in which its node is cordoned."""
        node = event.obj["metadata"]["name"]
        if node in self._tight and event.obj["spec"].get("unschedulable"):
            self._tight.discard(node)
            self.set_budget(node.replace("gpu", "late"), 0)

    def _listen(self, event: Event) -> None:
        self.told.append((self.clock.now(), event_text(event.obj)))

    def _stray(self, event: Event) -> None:
        """Let a pod that no scheduler placed come to a node that is being emptied, and take its time to go."""
        pod = event.obj
        if pod["metadata"]["labels"].get("app") == "late-1" and pod["metadata"].get("deletionTimestamp") and not self._strayed:
            self._strayed = True
            self.sandbox.faults.add(STRAY_STAYS)
            self.run_pod("stray", "gpu-1", owned=True)

    def _loosen(self) -> None:
        for app in ("late-1", "late-2"):
            self.set_budget(app, 1)

    async def play(self) -> None:
        """Play the rollout, and take a picture wherever nothing moves."""
        self.writes = 0
        self._rolls = True
        await self._upgrade()
        await self._pause()
        await self._finish()
        await self._take_back()

    async def ask(self, field: str, value: object) -> None:
        """Set a field of what is said about drivers, one policy after the other."""
        resource = NVIDIA_DRIVERS if self.setup.owned else CLUSTER_POLICIES
        path = f"/spec/{field}" if self.setup.owned else f"/spec/driver/{field}"
        for name in self.setup.governors:
            await self.user.patch_json(resource, name, [{"op": "add", "path": path, "value": value}])

    async def _upgrade(self) -> None:
        self._tight = {"gpu-1", "gpu-2"}
        self.sandbox.faults.add(self.crash)
        await self.ask("version", self.new)
        await self.until(lambda: self._stuck(self.new, ("gpu-4", "gpu-5")) and self.state("gpu-6") == State.FAILED)
        await self._picture("two nodes wait for budgets, one has failed, one waits for its turn")

    async def _pause(self) -> None:
        await self.ask("upgradePolicy/autoUpgrade", False)
        await self.until(lambda: self.state("gpu-3") == "")
        await self._picture("paused")
        await self.ask("upgradePolicy/autoUpgrade", True)
        await self.until(lambda: self.state("gpu-3") == State.UPGRADE_REQUIRED)
        await self._picture("resumed")

    async def _finish(self) -> None:
        self.sandbox.store.subscribe(self._stray, "pods")
        self._loosen()
        await self.until(lambda: self.state("gpu-6") == State.FAILED and self.state("gpu-2") == self.state("gpu-3") == State.DONE)
        await self._picture("a stray pod keeps one node, and one has failed again")
        self.sandbox.faults.clear(STRAY_STAYS)
        await self.until(lambda: self.state("gpu-6") == State.POD_RESTART_REQUIRED)
        self.sandbox.faults.clear(self.crash)
        await self.until(lambda: self._all_run(self.new))
        await self._picture("upgraded")

    async def _take_back(self) -> None:
        self._tight = {"gpu-1", "gpu-2"}
        await self.ask("version", self.third)
        await self.until(lambda: self._stuck(self.third, ("gpu-4", "gpu-5", "gpu-6")))
        await self._picture("the second rollout is stuck")
        await self.ask("version", self.new)
        await self.until(lambda: self._all_run(self.new))
        await self._picture("taken back")

    def _stuck(self, version: str, idle: tuple[str, ...]) -> bool:
        """Tell whether the idle nodes are done and the two others that may be under way wait for their budgets."""
        return (all(self.state(node) == State.DONE and self.driver(node) == version for node in idle)
                and all(self.state(node) == State.POD_DELETION_REQUIRED for node in ("gpu-1", "gpu-2"))
                and not any(pod["spec"].get("nodeName") for pod in self.workload_pods("shared-2")))

    def _all_run(self, version: str) -> bool:
        return (all(self.state(node) == State.DONE and self.driver(node) == version for node in NODES[:-1])
                and self.cordons() == ["gpu-4"] and all(map(is_ready, self.workload_pods())))

    async def _picture(self, title: str) -> None:
        await self.rest(REST_SECONDS)
        while self._work is None or self.clock.now() < self.calm_at:
            await self.rest(1.0)
        self.pictures.append(take(self, title))
        self.developed()


def _state(status: Object) -> tuple[str, str]:
    reasons = (one["reason"] for one in status.get("conditions") or () if one["status"] == "True")
    return str(status.get("state")), str(next(reasons, ""))
