"""The GPU models that sandbox machines can have, the labels that feature discovery writes for them, and who asks for GPUs.

Products, memory (MiB as nvidia-smi reports it), architecture and compute capability are NVIDIA's published figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuward.model.workloads import is_vm_gpu
from gpuward.names import GPU_PRODUCT, GPU_RESOURCE_PREFIXES, MIG_CAPABLE
from kubesandbox.sim.demands import requests_of
from kubesandbox.sim.objects import namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubesandbox.sim.objects import Object
    from kubesandbox.store import Store

CLAIMS: Final = "resourceclaims.resource.k8s.io"
GPU_DRA_DRIVER: Final = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Describe one GPU model."""

    product: str
    memory: int
    family: str
    compute: str
    mig: bool


MODELS: Final = {
    "H100": GpuModel("NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", True),
    "A100": GpuModel("NVIDIA-A100-80GB-PCIe", 81920, "ampere", "8.0", True),
    "T4": GpuModel("Tesla-T4", 15360, "turing", "7.5", False),
}
DEFAULT_MODEL: Final = "H100"


def model_of(product: str) -> GpuModel:
    """Return the model of a name or product label; one that is not known passes as a plain GPU of that product."""
    for name, model in MODELS.items():
        if product in (name, model.product):
            return model
    return GpuModel(product, 0, "undefined", "0.0", False)


def discovered_labels(model: GpuModel, count: int, driver: str) -> dict[str, str]:
    """Return the labels of GPU feature discovery for a node with `count` GPUs under a loaded driver version."""
    prefix = "nvidia.com/"
    parts = [*driver.split("."), "", ""]
    major, minor = model.compute.split(".")
    labels = {
        GPU_PRODUCT: model.product, MIG_CAPABLE: str(model.mig).lower(), prefix + "gpu.count": str(count),
        prefix + "gpu.replicas": "1", prefix + "gpu.sharing-strategy": "none", prefix + "gpu.mode": "compute",
        prefix + "gpu.machine": "Sandbox", prefix + "vgpu.present": "false", prefix + "mps.capable": "false",
        prefix + "cuda.driver-version.full": driver, prefix + "cuda.driver-version.major": parts[0],
        prefix + "cuda.driver-version.minor": parts[1], prefix + "cuda.driver-version.revision": parts[2],
        prefix + "cuda.driver.major": parts[0], prefix + "cuda.driver.minor": parts[1],
        prefix + "cuda.driver.rev": parts[2]}
    if model.memory:
        labels[prefix + "gpu.memory"] = str(model.memory)
    if model.compute != "0.0":
        labels |= {prefix + "gpu.family": model.family, prefix + "gpu.compute.major": major,
                   prefix + "gpu.compute.minor": minor}
    return labels


def is_gpu(resource: str) -> bool:
    """Tell whether a resource name means GPUs or parts of them."""
    return resource.startswith(GPU_RESOURCE_PREFIXES)


def is_device(resource: str) -> bool:
    """Tell whether a resource name means GPUs, whole or in parts, for containers or for virtual machines."""
    return is_gpu(resource) or is_vm_gpu(resource)


def devices_wanted(spec: Object) -> float:
    """Return how many devices of the machine a pod spec asks for."""
    return sum(value for name, value in requests_of(spec).items() if is_device(name))


def gpus_wanted(spec: Object) -> float:
    """Return how many GPUs, or parts of them, a pod spec asks for."""
    return sum(value for name, value in requests_of(spec).items() if is_gpu(name))


def claims_gpus(pod: Object, containers: Iterable[Object], store: Store) -> bool:
    """Tell whether any of these containers of a pod claims GPUs that NVIDIA's DRA driver allocated."""
    claims = {status["name"]: status.get("resourceClaimName") for status in (
        pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    claims |= {one["name"]: one["resourceClaimName"] for one in pod["spec"].get("resourceClaims") or ()
               if one.get("resourceClaimName")}
    return any(_is_of_gpus(claims.get(one["name"]), pod, store) for container in containers
               for one in (container.get("resources") or {}).get("claims") or ())


def _is_of_gpus(claim: str | None, pod: Object, store: Store) -> bool:
    found = store.find(CLAIMS, namespace_of(pod), claim) if claim else None
    allocation = ((found or {}).get("status") or {}).get("allocation") or {}
    return any(one.get("driver") == GPU_DRA_DRIVER for one in (allocation.get("devices") or {}).get("results") or ())
