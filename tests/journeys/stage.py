"""A cluster with an operator in it, in virtual time: what the journeys are played on.

Users act through a client of their own; the operator's client is separate, so that its requests can be counted and disturbed.
The history of every node is recorded at each change in the store, so that limits can be checked at every moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import structlog

from gpuward import names
from gpuward.cli import logs
from gpuward.controllers.operator import Operator, Settings
from gpuward.crd.generate import all_crds
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate
from gpuward.model.explain import arguments
from gpuward.model.states import IN_PROGRESS, State, parse_state
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE, fleet, operator_place
from gpuward.sandbox.samples import IMAGES, sample_policy
from kubesandbox.builders import deployment, namespace
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from kubesandbox.timeloop import LoopClock, run_virtual

Object = dict[str, Any]
Proceed = Callable[[], Answer | Stream]
Test = Callable[["Stage"], Coroutine[Any, Any, None]]

POLICY = "cluster-policy"
OLD, NEW = "595.91.07", "595.91.08"


S = TypeVar("S", bound="Stage")


class Moment(NamedTuple):
    """Hold what one node was like from an instant on."""

    at: float
    node: str
    state: State | None
    cordoned: bool
    ready: bool


class Stage:
    """Play a cluster: `start`, then act and wait, then `stop`. The decorator `on_stage` does the first and the last."""

    def __init__(self, gpu_nodes: int = 3, *, objects: list[Object] | None = None, upgrade: Mapping[str, Any] | None = None,
                 interfere: Callable[[Request, Proceed], Answer | Stream] | None = None, **sandbox: Any) -> None:
        self.clock = LoopClock()
        self.sandbox = Sandbox(**sandbox)
        self.gpu_nodes = gpu_nodes
        self.objects = objects or []
        self.upgrade_policy = dict(upgrade or {})
        self.user = Client(self.sandbox.transport())
        self.log: list[Object] = []
        self.history: list[Moment] = []
        self.transport = self.sandbox.transport()
        if interfere is not None:
            self.transport.interfere = interfere
        self.client = Client(self.transport)
        self.operator = self._operator()
        self._work: asyncio.Task[None] | None = None
        self._now: dict[str, Moment] = {}
        self.most_in_progress = self.most_unavailable = 0
        self._marked = 0

    def _operator(self) -> Operator:
        return self.new_operator()

    def new_operator(self, client: Client | None = None, clock: LoopClock | None = None, *,
                     leads: Callable[[], bool] = lambda: True, identity: str = "") -> Operator:
        """Return an operator; one with an identity keeps the ledger of admissions, as with --leader-elect."""
        candidate = Candidate(identity, names.DEFAULT_NAMESPACE) if identity else None
        settings = Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=0)
        return Operator(client or self.client, settings, clock or self.clock, leads, candidate)

    # Beginning and end.

    async def start(self) -> None:
        """Start the sandbox with its nodes and CRDs, the policy and the operator."""
        logs.configure(lambda line: self.log.append(json.loads(line)), self.clock.now)
        self.sandbox.store.subscribe(self._saw_node, "nodes")
        await self.sandbox.start()
        for node in self._nodes():
            self.sandbox.add_node(node)
        for obj in (*operator_place(), namespace(WORKLOAD_NAMESPACE), *all_crds(), *self.objects):
            self.sandbox.apply(obj)
        await self.user.create(resources.CLUSTER_POLICIES, self._policy())
        self.begin_operator()

    def _nodes(self) -> list[Object]:
        return fleet(self.gpu_nodes, 1)

    def _policy(self) -> Object:
        return policy(upgrade=self.upgrade_policy)

    async def stop(self) -> None:
        """End everything; raise what the operator ended with, if it ended by itself."""
        await self.kill_operator()
        await self.sandbox.stop()

    def begin_operator(self) -> None:
        """Let the operator run."""
        self._work = asyncio.create_task(self.operator.run())

    async def kill_operator(self) -> None:
        """End the operator where it is; raise what it ended with before, if it did."""
        if self._work is None:
            return
        work, self._work = self._work, None
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error

    async def restart_operator(self, another: Operator | None = None) -> None:
        """Kill the operator and start another one that knows nothing of it."""
        await self.kill_operator()
        self.operator = another or self._operator()
        self.begin_operator()

    # What is there.

    def get(self, key: str, name: str, namespace: str = names.DEFAULT_NAMESPACE) -> Object:
        """Return an object of the store by its resource key, such as `daemonsets.apps`."""
        return self.sandbox.store.get(key, namespace, name)

    def node(self, name: str) -> Object:
        """Return a node."""
        return self.sandbox.store.get("nodes", None, name)

    def labels(self, node: str) -> dict[str, str]:
        """Return a node's labels."""
        return dict(self.node(node)["metadata"].get("labels") or {})

    def state(self, node: str) -> str:
        """Return a node's upgrade state label, empty when absent."""
        return self.labels(node).get(names.UPGRADE_STATE, "")

    def states(self) -> dict[str, str]:
        """Return the upgrade state of every GPU node."""
        return {node["metadata"]["name"]: self.state(node["metadata"]["name"]) for node in self.gpu_node_objects()}

    def gpu_node_objects(self) -> list[Object]:
        """Return the GPU nodes."""
        return [node for node in self.sandbox.store.list("nodes") if node["metadata"]["name"].startswith("gpu-")]

    def cordoned(self, node: str) -> bool:
        """Tell whether a node is unschedulable."""
        return bool(self.node(node)["spec"].get("unschedulable"))

    def cordons(self) -> list[str]:
        """Return the nodes that are unschedulable."""
        return [node["metadata"]["name"] for node in self.sandbox.store.list("nodes") if node["spec"].get("unschedulable")]

    def driver(self, node: str) -> str:
        """Return the version of the driver that is loaded on a node."""
        return self.sandbox.machine(node).driver

    def drivers(self) -> list[str]:
        """Return the different driver versions that are loaded on the GPU nodes."""
        return sorted({self.driver(node["metadata"]["name"]) for node in self.gpu_node_objects()})

    def pods(self, app: str = "", node: str = "", namespace: str = names.DEFAULT_NAMESPACE) -> list[Object]:
        """Return the pods of an app, on a node if one is named."""
        return [pod for pod in self.sandbox.store.list("pods", namespace)
                if app in ("", (pod["metadata"].get("labels") or {}).get("app")) and node in ("", pod["spec"].get("nodeName"))]

    def driver_pod(self, node: str) -> Object:
        """Return a node's driver pod."""
        return self.pods(names.DRIVER_APP, node)[0]

    def workload_pods(self, app: str = "", node: str = "") -> list[Object]:
        """Return the pods of users."""
        return self.pods(app, node, WORKLOAD_NAMESPACE)

    def policy_status(self, name: str = POLICY) -> Object:
        """Return a ClusterPolicy's status."""
        found = self.sandbox.store.find("clusterpolicies.nvidia.com", None, name)
        return dict((found or {}).get("status") or {})

    def condition(self) -> Object:
        """Return the condition of the ClusterPolicy that is True."""
        return next((one for one in self.policy_status().get("conditions", ()) if one["status"] == "True"), {})

    def hold(self, node: str) -> str:
        """Return what the operator says that a node waits for: the reason's code."""
        found = self.operator.plan.holds.get(node)
        return str(found.reason) if found else ""

    def events(self, node: str, kind: str = "") -> list[str]:
        """Return the messages of a node's upgrade events, in order."""
        found = [event for event in self.sandbox.store.list("events", "default")
                 if event["involvedObject"]["name"] == node and kind in ("", event["type"])]
        return [event["message"] for event in sorted(found, key=lambda event: event["metadata"]["resourceVersion"].zfill(12))]

    def warnings(self, text: str = "", **fields: str) -> list[Object]:
        """Return the log's warnings and errors whose message contains a text and whose fields have these values."""
        return [line for line in self.log if line["level"] in ("warning", "error") and text in line["msg"]
                and all(line.get(key) == value for key, value in fields.items())]

    # Waiting.

    async def until(self, holds: Callable[[], object], within: float = 600.0) -> None:
        """Wait until something holds; the error of a wait in vain tells the fleet's state."""
        try:
            await self.sandbox.until(lambda: self._ended() or holds(), within)
        except TimeoutError:
            waits = {name: (str(hold.reason), arguments(hold.what)) for name, hold in self.operator.plan.holds.items()}
            raise AssertionError(f"in vain: {self.states()}, {waits}, {self.policy_status()}") from None
        if self._ended():
            await self.kill_operator()
            raise AssertionError("the operator ended")

    def _ended(self) -> bool:
        return self._work is not None and self._work.done()

    async def installed(self) -> None:
        """Wait until the whole stack is ready and every GPU node done."""
        await self.until(lambda: self.policy_status().get("state") == "ready" and self.all_are(State.DONE))

    def all_are(self, state: State) -> bool:
        """Tell whether every GPU node is in a state."""
        states = self.states()
        return bool(states) and set(states.values()) == {str(state)}

    def finished(self, version: str = NEW) -> bool:
        """Tell whether every GPU node is done and runs a driver version."""
        return self.all_are(State.DONE) and self.drivers() == [version]

    async def upgraded(self, version: str = NEW, within: float = 3600.0) -> None:
        """Wait until every GPU node is done with a driver version, and no cordon is left that was not there."""
        await self.until(lambda: self.finished(version), within)

    async def rest(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    # What users do.

    async def patch_policy(self, field: str, value: object) -> None:
        """Set a field of the spec, named with slashes as in `driver/version`."""
        patch = [{"op": "add", "path": f"/spec/{field}", "value": value}]
        await self.user.patch_json(resources.CLUSTER_POLICIES, POLICY, patch)

    async def remove_at_once(self) -> None:
        """Have drivers that are to go taken away at once, under whatever uses them, as NVIDIA's operator does."""
        known = self.sandbox.store.find("rolloutpolicies.gpuward.io", None, "default") or {}
        self.sandbox.apply({"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
                            "spec": {**known.get("spec", {}), "removeAtOnce": True}})
        await self.rest(2)

    async def switch_off_at_once(self) -> None:
        """Take all drivers of the ClusterPolicy away."""
        await self.remove_at_once()
        await self.patch_policy("driver/enabled", False)

    async def upgrade_to(self, version: str = NEW) -> None:
        """Ask for another driver version; limits are watched from here on."""
        self.watch_limits()
        await self.patch_policy("driver/version", version)

    async def label(self, node: str, key: str, value: str | None) -> None:
        """Set or remove a node's label."""
        await self.user.patch_merge(resources.NODES, node, {"metadata": {"labels": {key: value}}})

    async def cordon(self, node: str, wanted: bool = True) -> None:
        """Make a node unschedulable, or schedulable, as kubectl does."""
        await self.user.patch_merge(resources.NODES, node, {"spec": {"unschedulable": wanted or None}})

    def run_pod(self, name: str, node: str, *, owned: bool = False) -> Object:
        """Create a pod with a GPU, bound to a node already; no controller owns it, or one whose replicas are complete."""
        template = gpu_template(name)
        meta: Object = {"name": name, "namespace": WORKLOAD_NAMESPACE, "labels": {"app": name}}
        if owned:
            self.sandbox.apply(deployment(name, WORKLOAD_NAMESPACE, 0, template))
            owner = self.sandbox.store.get("deployments.apps", WORKLOAD_NAMESPACE, name)
            meta["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "controller": True,
                                        "uid": owner["metadata"]["uid"]}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], "nodeName": node}}
        return self.sandbox.apply(pod)

    async def deploy(self, name: str, replicas: int = 1, *, node: str = "", max_unavailable: int | None = None) -> None:
        """Run GPU pods of a Deployment, on one node if it is named, under a budget if one is given; wait until they run."""
        template = gpu_template(name)
        if node:
            template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.sandbox.apply(deployment(name, WORKLOAD_NAMESPACE, replicas, template))
        if max_unavailable is not None:
            self.set_budget(name, max_unavailable)
        await self.until(lambda: sum(map(is_ready, self.workload_pods(name))) == replicas)

    def set_budget(self, app: str, max_unavailable: int) -> None:
        """Protect an app's pods by a budget, or change that."""
        self.sandbox.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                            "metadata": {"name": app, "namespace": WORKLOAD_NAMESPACE},
                            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": app}}}})

    # What happened.

    def watch_limits(self) -> None:
        """Begin to note the most nodes under way, and out of service, at once."""
        self.most_in_progress = self.most_unavailable = 0
        self._marked = len(self.history)

    def entered(self, node: str) -> list[State]:
        """Return the states that a node's label showed since `watch_limits`, in order."""
        shown: list[State] = []
        for moment in self.history[self._marked:]:
            if moment.node == node and moment.state and (not shown or shown[-1] is not moment.state):
                shown.append(moment.state)
        return shown

    def _saw_node(self, event: Event) -> None:
        node = event.obj
        name = node["metadata"]["name"]
        if event.type == "DELETED":
            self._now.pop(name, None)
            return
        label = (node["metadata"].get("labels") or {}).get(names.UPGRADE_STATE)
        conditions = node.get("status", {}).get("conditions") or ()
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        moment = Moment(self.clock.now(), name, parse_state(label), bool(node["spec"].get("unschedulable")), ready)
        if name in self._now and self._now[name][1:] == moment[1:]:
            return
        self._now[name] = moment
        self.history.append(moment)
        seen = [moment for moment in self._now.values() if moment.node.startswith("gpu-")]
        under_way = sum(moment.state in IN_PROGRESS for moment in seen)
        out = sum(moment.state in IN_PROGRESS or moment.cordoned or not moment.ready for moment in seen)
        self.most_in_progress = max(self.most_in_progress, under_way)
        self.most_unavailable = max(self.most_unavailable, out)


def policy(name: str = POLICY, upgrade: Mapping[str, Any] | None = None) -> Object:
    """Return the example policy with fields of its upgrade policy changed."""
    body: Object = sample_policy()
    body["metadata"]["name"] = name
    body["spec"]["driver"]["upgradePolicy"] |= upgrade or {}
    return body


def gpu_template(app: str) -> Object:
    """Return a pod template with one GPU."""
    gpu = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "registry.example/work:1", "resources": {"limits": gpu, "requests": gpu}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}}


def blind_to_budgets(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
    """Refuse to list disruption budgets, as under the rights of NVIDIA's chart: then only the eviction API tells of them."""
    if "/poddisruptionbudgets" in request.path:
        return refusal(Forbidden("poddisruptionbudgets.policy is forbidden"))
    return proceed()


def blind_to_events(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
    """Refuse to list events, as under the operator's own rights: `gpuward status` in its pod has these."""
    if "/events" in request.path and request.method == "GET":
        return refusal(Forbidden("events is forbidden"))
    return proceed()


@asynccontextmanager
async def playing(stage: S) -> AsyncIterator[S]:
    """Start a stage, and stop it in the end. No decision may have failed then."""
    try:
        await stage.start()
        yield stage
    finally:
        try:
            await stage.stop()
        finally:
            structlog.reset_defaults()
    assert not stage.warnings("A pass failed")


def on_stage(gpu_nodes: int = 3, *, kind: type[Stage] = Stage, **options: Any) -> Callable[[Test], Callable[[], None]]:
    """Play a test on a stage of its own, in virtual time."""
    def decorate(test: Test) -> Callable[[], None]:
        def run() -> None:
            async def main() -> None:
                async with playing(kind(gpu_nodes, **options)) as stage:
                    await test(stage)

            run_virtual(main)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate
