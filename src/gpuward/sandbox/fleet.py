"""Builders for what a sandbox starts with: nodes as node feature discovery leaves them, workloads, the operator's place.

Node labels and versions are those of real clusters: Ubuntu with its kernels, containerd, Kubernetes 1.36.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gpuward.errors import InputError
from gpuward.names import (
    DEFAULT_NAMESPACE,
    DRAIN_SKIP,
    NFD_GPU_LABELS,
    NFD_KERNEL,
    NFD_OS_ID,
    NFD_OS_VERSION,
    NFD_PREFIX,
    OPERATOR_NAME,
)
from gpuward.sandbox.sim.gpus import MODELS
from gpuward.sandbox.sim.machine import COUNT_ANNOTATION, MODEL_ANNOTATION
from gpuward.sandbox.sim.programs import RUN_SECONDS

Object = dict[str, Any]

KUBERNETES: Final = "v1.36.3"
CONTAINERD: Final = "containerd://1.7.27"
WORKLOAD_NAMESPACE: Final = "ml"
DEFAULT_GPUS: Final = {"H100": 8, "A100": 8, "T4": 4}


@dataclass(frozen=True, slots=True)
class _System:
    version: str
    kernel: str
    image: str


SYSTEMS: Final = {
    "ubuntu22.04": _System("22.04", "5.15.0-101-generic", "Ubuntu 22.04.4 LTS"),
    "ubuntu24.04": _System("24.04", "6.8.0-45-generic", "Ubuntu 24.04.1 LTS"),
}


def gpu_node(name: str, model: str = "H100", os: str = "ubuntu22.04", gpus: int | None = None) -> Object:
    """Return a node with GPUs that has not been touched by a GPU operator yet.

    Raises InputError for a model or an operating system that the sandbox does not know.
    """
    if model not in MODELS:
        raise InputError("model", model, "use one of " + ", ".join(MODELS))
    node = cpu_node(name, os)
    node["metadata"]["labels"][NFD_GPU_LABELS[0]] = "true"
    node["metadata"]["annotations"] |= {
        MODEL_ANNOTATION: model, COUNT_ANNOTATION: str(DEFAULT_GPUS[model] if gpus is None else gpus)}
    return node


def cpu_node(name: str, os: str = "ubuntu22.04") -> Object:
    """Return a node without GPUs; raises InputError for an operating system that the sandbox does not know."""
    if os not in SYSTEMS:
        raise InputError("os", os, "use one of " + ", ".join(SYSTEMS))
    system = SYSTEMS[os]
    major, minor = system.version.split(".")
    resources = {"cpu": "96", "memory": "1024Gi", "pods": "250", "ephemeral-storage": "1000Gi"}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}, "labels": {
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
            NFD_KERNEL: system.kernel, NFD_PREFIX + "kernel-version.major": system.kernel.split(".")[0],
            NFD_OS_ID: "ubuntu", NFD_OS_VERSION: system.version,
            NFD_OS_VERSION + ".major": major, NFD_OS_VERSION + ".minor": minor}},
        "spec": {},
        "status": {"capacity": dict(resources), "allocatable": dict(resources), "conditions": _conditions(),
                   "addresses": [{"type": "InternalIP", "address": _address(name)}, {"type": "Hostname", "address": name}],
                   "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                   "nodeInfo": {
                       "architecture": "amd64", "operatingSystem": "linux", "osImage": system.image,
                       "kernelVersion": system.kernel, "containerRuntimeVersion": CONTAINERD, "kubeletVersion": KUBERNETES,
                       "kubeProxyVersion": "", "machineID": name, "systemUUID": name, "bootID": name}}}


def fleet(gpu_nodes: int = 12, cpu_nodes: int = 1) -> list[Object]:
    """Return a mixed fleet: H100, A100 and T4 in turn, both Ubuntu releases."""
    names = list(MODELS)
    systems = list(SYSTEMS)
    nodes = [gpu_node(f"gpu-{number:0{len(str(gpu_nodes))}d}", names[number % len(names)],
                      systems[number // len(names) % len(systems)]) for number in range(1, gpu_nodes + 1)]
    return nodes + [cpu_node(f"cpu-{number}") for number in range(1, cpu_nodes + 1)]


def workloads(inference: int = 6, training: int = 2, web: int = 4, *, max_unavailable: int | str = 1,
              training_seconds: float = 3600.0) -> list[Object]:
    """Return what users run: GPU pods under a disruption budget, a Job with GPUs, and pods without.

    The numbers are of pods; each GPU pod takes one GPU.
    """
    gpu = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "training", "namespace": WORKLOAD_NAMESPACE},
           "spec": {"completions": training, "parallelism": training, "backoffLimit": 20, "template": _template(
               "training", "registry.example/training:3", gpu, policy="Never",
               annotations={RUN_SECONDS: str(training_seconds)})}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "inference", "namespace": WORKLOAD_NAMESPACE},
              "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "inference"}}}}
    small = {"requests": {"cpu": "250m", "memory": "256Mi"}}
    return [namespace(WORKLOAD_NAMESPACE),
            deployment("inference", WORKLOAD_NAMESPACE, inference, _template(
                "inference", "registry.example/inference:7", gpu)), budget, job,
            deployment("web", WORKLOAD_NAMESPACE, web, _template("web", "registry.example/web:2", small))]


def operator_place() -> list[Object]:
    """Return the namespace and the Deployment as which the operator shows in the cluster."""
    template = _template(OPERATOR_NAME, "gpuward", {"requests": {"cpu": "200m", "memory": "100Mi"}})
    template["metadata"]["labels"] |= {"app.kubernetes.io/component": OPERATOR_NAME, DRAIN_SKIP: "true"}
    return [namespace(DEFAULT_NAMESPACE), deployment(OPERATOR_NAME, DEFAULT_NAMESPACE, 1, template)]


def namespace(name: str) -> Object:
    """Return a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "kubernetes.io/metadata.name": name}}, "spec": {"finalizers": ["kubernetes"]}}


def deployment(name: str, namespace_name: str, replicas: int, template: Object) -> Object:
    """Return a Deployment that selects the label `app` of its template."""
    return {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace_name, "labels": {"app": name}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}}


def _template(app: str, image: str, resources: Object, *, policy: str = "Always",
              annotations: dict[str, str] | None = None) -> Object:
    meta: Object = {"labels": {"app": app}}
    if annotations:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": {
        "restartPolicy": policy, "containers": [{"name": app, "image": image, "resources": resources}]}}


def _conditions() -> list[Object]:
    healthy = (("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
               ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
               ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"))
    conditions = [{"type": kind, "status": "False", "reason": reason, "message": message}
                  for kind, reason, message in healthy]
    return [*conditions, {"type": "Ready", "status": "True", "reason": "KubeletReady",
                          "message": "kubelet is posting ready status"}]


def _address(name: str) -> str:
    """Return an address in 10.0.0.0/10 that belongs to a node's name."""
    value = 0
    for letter in name.encode():
        value = (value * 131 + letter) & 0x3FFFFF
    return f"10.{value >> 16}.{value >> 8 & 255}.{value & 255}"
