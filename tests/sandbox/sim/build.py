"""Builders and a small cluster for the simulation's tests; they read like the sentence that they mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from gpuward.kubesandbox.builders import namespace
from gpuward.kubesandbox.sim.objects import is_ready, is_terminating, labels_of, name_of
from gpuward.kubesandbox.sim.simulation import Simulation
from gpuward.kubesandbox.store import Store
from gpuward.kubesandbox.timeloop import EPOCH, LoopClock, run_virtual
from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.fleet import cpu_node, gpu_node
from gpuward.sandbox.hardware import GpuHardware
from gpuward.sandbox.machine import GpuMachine

Object = dict[str, Any]
OPERATOR = "gpu-operator"
RESOURCES = {"Namespace": "namespaces", "Node": "nodes", "Pod": "pods", "DaemonSet": "daemonsets.apps",
             "Deployment": "deployments.apps", "ReplicaSet": "replicasets.apps", "Job": "jobs.batch",
             "PodDisruptionBudget": "poddisruptionbudgets.policy", "ConfigMap": "configmaps",
             "RuntimeClass": "runtimeclasses.node.k8s.io", "ServiceAccount": "serviceaccounts"}
STACK = ("driver", "container-toolkit", "device-plugin", "operator-validator", "gpu-feature-discovery", "dcgm-exporter")


class Cluster:
    """Hold a simulation on a bare store, with short ways to look at it and to wait for something."""

    def __init__(self, *nodes: Object, delays: GpuDelays | None = None, seed: int = 0) -> None:
        self.store = Store(LoopClock().now, seed)
        self.writes = 0
        self.store.subscribe(self._count)
        self.add(namespace(OPERATOR), namespace("ml"), *nodes)
        self.sim = Simulation(self.store, Random(seed), delays or GpuDelays(), GpuHardware())
        self.sim.start()

    def machine(self, node: str) -> GpuMachine:
        machine = self.sim.machine(node)
        assert isinstance(machine, GpuMachine)
        return machine

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

    def gpus(self, name: str) -> str:
        offered: str = self.node(name)["status"]["allocatable"].get("nvidia.com/gpu", "0")
        return offered

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


def labelled_gpu_node(name: str, **kwargs: Any) -> Object:
    """Return a GPU node whose labels ask for the whole stack."""
    node = gpu_node(name, **kwargs)
    node["metadata"]["labels"] |= {"nvidia.com/gpu.present": "true",
                                   **{f"nvidia.com/gpu.deploy.{operand}": "true" for operand in STACK}}
    node["metadata"]["annotations"]["nvidia.com/gpu-driver-upgrade-enabled"] = "true"
    return node


def daemonset(name: str, *, operand: str = "", image: str = "registry.example/agent:1", init: list[Object] | None = None,
              container: str = "agent", strategy: Object | None = None, **spec: Any) -> Object:
    selector = {"nodeSelector": {f"nvidia.com/gpu.deploy.{operand}": "true"}} if operand else {}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": OPERATOR},
        "spec": {"selector": {"matchLabels": {"app": name}}, "updateStrategy": strategy or {"type": "OnDelete"},
                 "template": {"metadata": {"labels": {"app": name}}, "spec": {
                     "containers": [{"name": container, "image": image, **spec.pop("container_spec", {})}],
                     "initContainers": init or [], "tolerations": tolerations, "restartPolicy": "Always",
                     **selector, **spec}}}}


def rolling(max_unavailable: int | str = 1) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


def step(component: str, *, wait: bool = False, workload: bool = False) -> Object:
    return {"name": f"{component}-validation", "image": "gpu-operator:1", "env": [
        {"name": "COMPONENT", "value": component}, {"name": "WITH_WAIT", "value": str(wait).lower()},
        {"name": "WITH_WORKLOAD", "value": str(workload).lower()}, {"name": "VALIDATOR_IMAGE", "value": "gpu-operator:1"},
        {"name": "VALIDATOR_RUNTIME_CLASS", "value": "nvidia"}]}


RUNTIME_CLASS: Object = {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
WAIT_FOR_TOOLKIT: Object = {"name": "toolkit-validation", "image": "gpu-operator:1"}


def driver(version: str = "550.90.07", digest: str = "") -> Object:
    env = [{"name": "DRIVER_CONFIG_DIGEST", "value": digest or version}]
    return daemonset(
        "nvidia-driver-daemonset", operand="driver", image=f"nvcr.io/nvidia/driver:{version}-ubuntu22.04",
        container="nvidia-driver-ctr", container_spec={"env": env, "startupProbe": {"exec": {"command": ["probe"]}}},
        init=[{"name": "k8s-driver-manager", "image": "manager:1", "env": [
            *env, {"name": "ENABLE_GPU_POD_EVICTION", "value": "true"}]}])


def stack(version: str = "550.90.07") -> list[Object]:
    """Return the DaemonSets of a GPU stack, as far as the simulation looks at them."""
    nvidia: dict[str, Any] = {"runtimeClassName": "nvidia", "strategy": rolling()}
    return [
        RUNTIME_CLASS, driver(version),
        daemonset("nvidia-container-toolkit-daemonset", operand="container-toolkit",
                  container="nvidia-container-toolkit-ctr", init=[step("driver", wait=True)], strategy=rolling()),
        daemonset("nvidia-device-plugin-daemonset", operand="device-plugin", container="nvidia-device-plugin",
                  init=[WAIT_FOR_TOOLKIT], **nvidia),
        daemonset("nvidia-operator-validator", operand="operator-validator", container="nvidia-operator-validator",
                  init=[step("driver", wait=True), step("toolkit"), step("cuda"), step("plugin")], **nvidia),
        daemonset("gpu-feature-discovery", operand="gpu-feature-discovery", container="gpu-feature-discovery",
                  init=[WAIT_FOR_TOOLKIT], **nvidia),
        daemonset("nvidia-dcgm-exporter", operand="dcgm-exporter", container="nvidia-dcgm-exporter",
                  init=[WAIT_FOR_TOOLKIT], **nvidia)]


def gpu_pod(name: str, *, gpus: int = 1, node: str = "", **meta: Any) -> Object:
    spec: Object = {"restartPolicy": "Always", "containers": [
        {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", **meta}, "spec": spec}


def all_ready(pods: list[Object]) -> bool:
    return bool(pods) and all(is_ready(pod) and not is_terminating(pod) for pod in pods)


__all__ = ["Cluster", "all_ready", "cpu_node", "daemonset", "driver", "gpu_node", "gpu_pod", "labelled_gpu_node", "play",
           "rolling", "stack", "step"]
