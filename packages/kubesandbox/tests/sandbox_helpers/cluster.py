"""Builders and a small cluster for the simulation's tests; they read like the sentence that they mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from kubesandbox.builders import linux_node, namespace
from kubesandbox.sim.hardware import Hardware, PlainHardware
from kubesandbox.sim.objects import is_ready, is_terminating, labels_of, name_of
from kubesandbox.sim.simulation import Simulation
from kubesandbox.sim.world import Delays
from kubesandbox.store import Store
from kubesandbox.timeloop import EPOCH, LoopClock, run_virtual

Object = dict[str, Any]
AGENTS = "agents"
DEVICE = "example.com/device"
RESOURCES = {"Namespace": "namespaces", "Node": "nodes", "Pod": "pods", "DaemonSet": "daemonsets.apps",
             "Deployment": "deployments.apps", "ReplicaSet": "replicasets.apps", "Job": "jobs.batch",
             "PodDisruptionBudget": "poddisruptionbudgets.policy", "ConfigMap": "configmaps", "Secret": "secrets",
             "RuntimeClass": "runtimeclasses.node.k8s.io", "ServiceAccount": "serviceaccounts"}


class DeviceHardware(PlainHardware):
    """Be machines with devices that a plugin offers."""

    def is_device(self, resource: str) -> bool:
        return resource == DEVICE


class Cluster:
    """Hold a simulation on a bare store, with short ways to look at it and to wait for something."""

    namespaces = (AGENTS, "ml")

    def __init__(self, *nodes: Object, delays: Delays | None = None, seed: int = 0,
                 hardware: Hardware | None = None) -> None:
        self.store = Store(LoopClock().now, seed)
        self.writes = 0
        self.store.subscribe(self._count)
        self.add(*map(namespace, self.namespaces), *nodes)
        self.sim = Simulation(self.store, Random(seed), delays, hardware)
        self.sim.start()

    def _count(self, _event: object) -> None:
        self.writes += 1

    @property
    def now(self) -> float:
        return self.store.now() - EPOCH

    def add(self, *objects: Object) -> None:
        for obj in objects:
            self.store.create(RESOURCES[obj["kind"]], obj)

    def pods(self, app: str = "", node: str = "") -> list[Object]:
        return [pod for pod in self.store.list("pods")
                if (not app or labels_of(pod).get("app") == app) and (not node or pod["spec"].get("nodeName") == node)]

    def pod(self, app: str, node: str = "") -> Object:
        found = [pod for pod in self.pods(app, node) if not is_terminating(pod)]
        assert len(found) == 1, f"{len(found)} pods of {app}"
        return found[0]

    def containers(self, app: str, *, init: bool = False) -> list[Object]:
        """Return the container statuses of the pod of an app; none while there is no pod or no kubelet has seen it."""
        for pod in self.pods(app):
            if not is_terminating(pod):
                found: list[Object] = pod["status"].get("initContainerStatuses" if init else "containerStatuses") or []
                return found
        return []

    def restarts(self, app: str, *, init: bool = False) -> int:
        return max((status["restartCount"] for status in self.containers(app, init=init)), default=0)

    def node(self, name: str) -> Object:
        return self.store.get("nodes", None, name)

    def label(self, node: str, **labels: str | None) -> None:
        def change(obj: Object) -> None:
            for key, value in labels.items():
                name = key.replace("__", "/").replace("_", "-")
                if value is None:
                    obj["metadata"]["labels"].pop(name, None)
                else:
                    obj["metadata"]["labels"][name] = value
        self.store.modify("nodes", None, node, change)

    def change(self, kind: str, space: str | None, name: str, change: Callable[[Object], None]) -> None:
        self.store.modify(RESOURCES[kind], space, name, change)

    def cordon(self, node: str, wanted: bool = True) -> None:
        self.store.modify("nodes", None, node, lambda obj: obj["spec"].update(unschedulable=wanted))

    def delete(self, pod: Object, grace_seconds: int | None = None) -> None:
        self.store.delete("pods", pod["metadata"]["namespace"], name_of(pod), grace_seconds=grace_seconds)

    async def until(self, holds: Callable[[], object], within: float = 600.0) -> None:
        """Let time pass until something holds; fail when it does not within so many seconds."""
        deadline = self.now + within
        while not holds():
            assert self.sim.queue.crash is None, self.sim.queue.crash
            assert self.now < deadline, "it did not happen in time"
            await asyncio.sleep(0.25)

    async def rest(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        assert self.sim.queue.crash is None, self.sim.queue.crash


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run a test's story in virtual time."""
    async def main() -> None:
        await story()
    run_virtual(main)


def daemonset(name: str, *, image: str = "registry.example/agent:1", init: list[Object] | None = None,
              container: str = "agent", namespace: str = AGENTS, strategy: Object | None = None, **spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": name}}, "updateStrategy": strategy or {"type": "OnDelete"},
                 "template": {"metadata": {"labels": {"app": name}}, "spec": {
                     "containers": [{"name": container, "image": image, **spec.pop("container_spec", {})}],
                     "initContainers": init or [], "restartPolicy": "Always", **spec}}}}


def rolling(max_unavailable: int | str = 1) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


def device_node(name: str, devices: int = 8) -> Object:
    """Return a node that offers devices."""
    node = linux_node(name)
    for field in ("capacity", "allocatable"):
        node["status"][field][DEVICE] = str(devices)
    return node


def device_pod(name: str, *, devices: int = 1, node: str = "", **meta: Any) -> Object:
    spec: Object = {"restartPolicy": "Always", "containers": [
        {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {DEVICE: str(devices)}}}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", **meta}, "spec": spec}


def all_ready(pods: list[Object]) -> bool:
    return bool(pods) and all(is_ready(pod) and not is_terminating(pod) for pod in pods)
