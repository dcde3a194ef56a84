"""Builders and a small cluster for the tests of GPU machines; they read like the sentence that they mean."""

from __future__ import annotations

from typing import Any

from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.fleet import gpu_node
from gpuward.sandbox.hardware import GpuHardware
from gpuward.sandbox.machine import GpuMachine
from sandbox_helpers import cluster
from sandbox_helpers.cluster import all_ready, daemonset, play, rolling

Object = dict[str, Any]
OPERATOR = "gpu-operator"
STACK = ("driver", "container-toolkit", "device-plugin", "operator-validator", "gpu-feature-discovery", "dcgm-exporter")


class Cluster(cluster.Cluster):
    """Hold a simulation of machines with GPUs."""

    namespaces = (OPERATOR, "ml")

    def __init__(self, *nodes: Object, delays: GpuDelays | None = None, seed: int = 0) -> None:
        super().__init__(*nodes, delays=delays or GpuDelays(), seed=seed, hardware=GpuHardware())

    def machine(self, node: str) -> GpuMachine:
        machine = self.sim.machine(node)
        assert isinstance(machine, GpuMachine)
        return machine

    def gpus(self, name: str) -> str:
        offered: str = self.node(name)["status"]["allocatable"].get("nvidia.com/gpu", "0")
        return offered


def labelled_gpu_node(name: str, **kwargs: Any) -> Object:
    """Return a GPU node whose labels ask for the whole stack."""
    node = gpu_node(name, **kwargs)
    node["metadata"]["labels"] |= {"nvidia.com/gpu.present": "true",
                                   **{f"nvidia.com/gpu.deploy.{operand}": "true" for operand in STACK}}
    node["metadata"]["annotations"]["nvidia.com/gpu-driver-upgrade-enabled"] = "true"
    return node


def operand_set(name: str, operand: str, **more: Any) -> Object:
    """Return the DaemonSet of an operand, which goes where the label that deploys it is."""
    return daemonset(name, namespace=OPERATOR, nodeSelector={f"nvidia.com/gpu.deploy.{operand}": "true"},
                     tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}], **more)


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
    return operand_set("nvidia-driver-daemonset", "driver", image=f"nvcr.io/nvidia/driver:{version}-ubuntu22.04",
        container="nvidia-driver-ctr", container_spec={"env": env, "startupProbe": {"exec": {"command": ["probe"]}}},
        init=[{"name": "k8s-driver-manager", "image": "manager:1", "env": [
            *env, {"name": "ENABLE_GPU_POD_EVICTION", "value": "true"}]}])


def stack(version: str = "550.90.07") -> list[Object]:
    """Return the DaemonSets of a GPU stack, as far as the simulation looks at them."""
    nvidia: dict[str, Any] = {"runtimeClassName": "nvidia", "strategy": rolling()}
    return [
        RUNTIME_CLASS, driver(version),
        operand_set("nvidia-container-toolkit-daemonset", "container-toolkit",
                  container="nvidia-container-toolkit-ctr", init=[step("driver", wait=True)], strategy=rolling()),
        operand_set("nvidia-device-plugin-daemonset", "device-plugin", container="nvidia-device-plugin",
                  init=[WAIT_FOR_TOOLKIT], **nvidia),
        operand_set("nvidia-operator-validator", "operator-validator", container="nvidia-operator-validator",
                  init=[step("driver", wait=True), step("toolkit"), step("cuda"), step("plugin")], **nvidia),
        operand_set("gpu-feature-discovery", "gpu-feature-discovery", container="gpu-feature-discovery",
                  init=[WAIT_FOR_TOOLKIT], **nvidia),
        operand_set("nvidia-dcgm-exporter", "dcgm-exporter", container="nvidia-dcgm-exporter",
                  init=[WAIT_FOR_TOOLKIT], **nvidia)]


def gpu_pod(name: str, *, gpus: int = 1, node: str = "", **meta: Any) -> Object:
    spec: Object = {"restartPolicy": "Always", "containers": [
        {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", **meta}, "spec": spec}


__all__ = ["Cluster", "all_ready", "driver", "gpu_node", "gpu_pod", "labelled_gpu_node", "operand_set", "play", "rolling",
           "stack", "step"]
