from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.names import DRAIN_SKIP, NFD_GPU_LABELS, NFD_KERNEL, NFD_OS_VERSION
from gpuward.sandbox.fleet import cpu_node, fleet, gpu_node, operator_place, workloads
from gpuward.sandbox.machine import GpuMachine
from kubesandbox.errors import InputError

Object = dict[str, Any]
SHIPPED = Path(__file__).parents[2] / "deploy" / "operator.yaml"


def machine_of(node: Object) -> GpuMachine:
    return GpuMachine(node, lambda: None, lambda: 0.0, lambda _: None)


def test_a_gpu_node_looks_as_node_feature_discovery_leaves_it() -> None:
    node = gpu_node("gpu-1", "A100", "ubuntu24.04")
    labels, info = node["metadata"]["labels"], node["status"]["nodeInfo"]
    assert labels[NFD_GPU_LABELS[0]] == "true"
    assert (labels[NFD_KERNEL], labels[NFD_OS_VERSION]) == ("6.8.0-45-generic", "24.04")
    assert (info["kernelVersion"], info["containerRuntimeVersion"]) == ("6.8.0-45-generic", "containerd://1.7.27")
    assert not any(key.startswith("nvidia.com/") for key in labels)
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    assert NFD_GPU_LABELS[0] not in cpu_node("cpu-1")["metadata"]["labels"]


@pytest.mark.parametrize(("model", "gpus", "count"), [("H100", None, 8), ("T4", None, 4), ("T4", 1, 1)])
def test_the_machine_is_read_from_the_node(model: str, gpus: int | None, count: int) -> None:
    machine = machine_of(gpu_node("gpu-1", model, gpus=gpus))
    assert machine.gpus == count
    assert model in machine.model.product


def test_a_node_of_somebody_elses_is_understood_by_its_labels() -> None:
    node = cpu_node("n")
    assert machine_of(node).gpus == 0
    node["metadata"]["labels"]["feature.node.kubernetes.io/pci-10de.present"] = "true"
    assert machine_of(node).gpus == 1
    node["status"]["capacity"]["nvidia.com/gpu"] = "4"
    assert machine_of(node).gpus == 4
    node["metadata"]["labels"] |= {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-L40S"}
    machine = machine_of(node)
    assert (machine.gpus, machine.model.product) == (8, "NVIDIA-L40S")


def test_a_fleet_is_mixed() -> None:
    nodes = fleet(12)
    models = Counter(node["metadata"]["annotations"].get("sandbox.gpuward.io/gpu-model") for node in nodes)
    labels = [node["metadata"]["labels"] for node in nodes]
    systems = Counter(found[NFD_OS_VERSION] for found in labels if NFD_GPU_LABELS[0] in found)
    assert models == {"H100": 4, "A100": 4, "T4": 4, None: 1}
    assert systems == {"22.04": 6, "24.04": 6}
    assert len({node["metadata"]["name"] for node in nodes}) == 13


@pytest.mark.parametrize(("arguments", "field"), [({"model": "B9000"}, "model"), ({"os": "windows"}, "os")])
def test_what_the_sandbox_does_not_know_is_refused(arguments: dict[str, str], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: "):
        gpu_node("gpu-1", **arguments)  # type: ignore[arg-type]  # strings, all of them


def test_workloads_and_the_operators_place() -> None:
    kinds = Counter(obj["kind"] for obj in workloads())
    assert kinds == {"Namespace": 1, "Deployment": 2, "PodDisruptionBudget": 1, "Job": 1}
    _, deployment = operator_place()
    assert deployment["metadata"]["labels"] == {"app": "gpu-operator"}
    assert deployment["spec"]["template"]["metadata"]["labels"][DRAIN_SKIP] == "true"


def test_the_operators_deployment_may_be_applied_over_the_sandboxs() -> None:
    """No API server lets a selector be changed."""
    shipped = next(obj for obj in yaml.safe_load_all(SHIPPED.read_text()) if obj["kind"] == "Deployment")
    _, shown = operator_place()
    assert shown["metadata"]["name"] == shipped["metadata"]["name"]
    assert shown["spec"]["selector"] == shipped["spec"]["selector"]
