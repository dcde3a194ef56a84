"""Builders for what a sandbox starts with: a fleet as node feature discovery leaves it, workloads, the operator's place."""

from __future__ import annotations

from typing import Any, Final

from gpuward.names import DEFAULT_NAMESPACE, DRAIN_SKIP, NFD_GPU_LABELS, OPERATOR_NAME
from gpuward.sandbox.gpus import MODELS
from gpuward.sandbox.machine import COUNT_ANNOTATION, MODEL_ANNOTATION
from kubesandbox.builders import SYSTEMS, deployment, linux_node, namespace, template
from kubesandbox.errors import InputError
from kubesandbox.sim.programs import RUN_SECONDS

Object = dict[str, Any]

WORKLOAD_NAMESPACE: Final = "ml"
DEFAULT_GPUS: Final = {"H100": 8, "A100": 8, "T4": 4}


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
    return linux_node(name, os)


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
           "spec": {"completions": training, "parallelism": training, "backoffLimit": 20, "template": template(
               "training", "registry.example/training:3", gpu, policy="Never",
               annotations={RUN_SECONDS: str(training_seconds)})}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "inference", "namespace": WORKLOAD_NAMESPACE},
              "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "inference"}}}}
    small = {"requests": {"cpu": "250m", "memory": "256Mi"}}
    return [namespace(WORKLOAD_NAMESPACE),
            deployment("inference", WORKLOAD_NAMESPACE, inference, template(
                "inference", "registry.example/inference:7", gpu)), budget, job,
            deployment("web", WORKLOAD_NAMESPACE, web, template("web", "registry.example/web:2", small))]


def guarded_workload(node: str) -> list[Object]:
    """Return a GPU pod on one node, its Deployment and the disruption budget that never lets it go."""
    name = f"guarded-{node}"
    pods = template(name, "registry.example/inference:7",
                    {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}})
    pods["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": name, "namespace": WORKLOAD_NAMESPACE},
              "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}}}
    return [namespace(WORKLOAD_NAMESPACE), deployment(name, WORKLOAD_NAMESPACE, 1, pods), budget]


def operator_place() -> list[Object]:
    """Return the namespace and the Deployment as which the operator shows in the cluster.

    It selects its pods as that of deploy/operator.yaml does, which people apply over it: a selector never changes.
    """
    pods = template(OPERATOR_NAME, "gpuward", {"requests": {"cpu": "200m", "memory": "100Mi"}})
    component = {"app.kubernetes.io/component": OPERATOR_NAME}
    pods["metadata"]["labels"] |= {**component, DRAIN_SKIP: "true"}
    shown = deployment(OPERATOR_NAME, DEFAULT_NAMESPACE, 1, pods)
    shown["spec"]["selector"]["matchLabels"] |= component
    return [namespace(DEFAULT_NAMESPACE), shown]
