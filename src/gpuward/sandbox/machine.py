"""The machine under a node: its GPUs, the loaded driver, who uses it, and the status files of the GPU stack.

What is true of a driver stands here and nowhere else: which one is loaded since when, which pod serves it, who has the GPUs.
Labels and pods only tell of it. Each change of it is a `Passage`, with the workloads that had the GPUs at that moment.

The files are those of /run/nvidia/validations, by name; operands wait for them and write them as they do on a host.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuward.names import GPU_PRODUCT, NFD_GPU_LABELS
from gpuward.sandbox.gpus import DEFAULT_MODEL, GpuModel, claims_gpus, is_device, is_gpu, model_of
from kubesandbox.sim.demands import requests_of
from kubesandbox.sim.machine import Machine
from kubesandbox.sim.objects import Object, annotations_of, labels_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.store import Store

MODEL_ANNOTATION: Final = "sandbox.gpuward.io/gpu-model"
COUNT_ANNOTATION: Final = "sandbox.gpuward.io/gpus"
HOST_DRIVER_ANNOTATION: Final = "sandbox.gpuward.io/host-driver"
"""The version of a driver that is installed on the host itself."""

DRIVER_CONTAINER_READY: Final = ".driver-ctr-ready"
DRIVER_READY: Final = "driver-ready"
TOOLKIT_READY: Final = "toolkit-ready"
CUDA_READY: Final = "cuda-ready"
PLUGIN_READY: Final = "plugin-ready"


class DriverChange(StrEnum):
    """Name what can happen to a driver on a machine."""

    LOADED = "loaded"
    """Its kernel modules came."""
    UNLOADED = "unloaded"
    """Its kernel modules went; nothing that had the GPUs open can have been there."""
    SERVED = "served"
    """Its container is ready: libraries and daemons are there."""
    LEFT = "left"
    """Its container has ended, and with it the daemons; the modules stay while somebody has the GPUs open."""
    LOST = "lost"
    """The machine was rebooted or taken away."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Tell of one change of a machine's driver, at an instant in unix seconds.

    `workloads` are the running pods that had GPUs of the machine, as namespace/name, operands not among them; `pod` is the driver
    pod that brought it about, empty when none did.
    """

    at: float
    machine: str
    change: DriverChange
    driver: str
    workloads: tuple[str, ...]
    pod: str = ""

    @property
    def tore(self) -> bool:
        """Tell whether a driver was taken from under workloads."""
        return bool(self.workloads) and self.change in (DriverChange.UNLOADED, DriverChange.LEFT, DriverChange.LOST)


class GpuMachine(Machine):
    """Hold the state of one host that may have GPUs. `passed` is called with every change of its driver."""

    def __init__(self, node: Object, changed: Callable[[], None], now: Callable[[], float],
                 passed: Callable[[Passage], None]) -> None:
        super().__init__(node, changed)
        self.gpus = _count(node)
        self.model: GpuModel = model_of(
            annotations_of(node).get(MODEL_ANNOTATION) or labels_of(node).get(GPU_PRODUCT) or DEFAULT_MODEL)
        self.host_driver = annotations_of(node).get(HOST_DRIVER_ANNOTATION, "")
        self.files: set[str] = set()
        self.driver = self.host_driver
        self.digest = ""
        self.loaded_at = now()
        """Since when the driver has been loaded, or none has been."""
        self.server = ""
        """The driver pod whose container serves the driver, as namespace/name."""
        self.toolkit = bool(self.host_driver)
        """Whether the container runtime knows NVIDIA's runtime classes."""
        self.users: dict[str, str] = {}
        """Who has the GPUs open, by container: namespace/name of its pod. While there is one no module can be unloaded."""
        self.workloads: dict[str, str] = {}
        """Who was given GPUs, by container: namespace/name of its pod. One that has none of them open stops no unloading."""
        self.status = _without_gpus(self.status)
        self._now, self._passed = now, passed

    @property
    def has_libraries(self) -> bool:
        """Tell whether containers can be given a driver: its libraries are in its container's root, and go with that though the
        modules stay loaded, unless it is installed on the host.
        """
        return bool(self.host_driver) or (DRIVER_CONTAINER_READY in self.files and bool(self.driver))

    def write(self, name: str) -> None:
        """Write a status file."""
        self.files.add(name)
        self.changed()

    def erase(self, *names: str) -> None:
        """Remove status files, if they are there."""
        if self.files.intersection(names):
            self.files.difference_update(names)
            self.changed()

    def give(self, container: str, who: str) -> None:
        """Note that a container of a workload was given GPUs."""
        self.workloads[container] = who

    def open(self, container: str, who: str) -> None:
        """Note that a container has the GPUs open."""
        self.users[container] = who

    def close(self, container: str) -> None:
        """Note that a container, which ends, no longer has GPUs."""
        self.workloads.pop(container, None)
        if self.users.pop(container, None) is not None:
            self.changed()

    def load(self, version: str, digest: str, pod: str = "") -> str:
        """Load the kernel modules of a driver version; return what prevents it, nothing when they are in."""
        if self.driver:
            return f"the modules of driver {self.driver} are loaded"
        self.driver, self.digest, self.loaded_at = version, digest, self._now()
        self._note(DriverChange.LOADED, pod)
        self.changed()
        return ""

    def unload(self, pod: str = "") -> str:
        """Unload the kernel modules; return what prevents it, nothing when they are out."""
        if self.users:
            return "driver is in use by " + ", ".join(sorted(set(self.users.values())))
        if self.driver:
            self._note(DriverChange.UNLOADED, pod)
            self.driver, self.digest, self.loaded_at = "", "", self._now()
        self.changed()
        return ""

    def serve(self, pod: str) -> None:
        """Note that a driver container is ready."""
        self.server = pod
        self._note(DriverChange.SERVED, pod)

    def leave(self, pod: str) -> None:
        """Note that a driver container that was ready has ended."""
        self._note(DriverChange.LEFT, pod)
        if self.server == pod:
            self.server = ""

    def restart(self) -> None:
        """Boot anew: nothing that ran or was loaded is there any more."""
        if self.driver:
            self._note(DriverChange.LOST)
        self.driver, self.digest, self.server, self.loaded_at = self.host_driver, "", "", self._now()
        self.toolkit = bool(self.host_driver)
        self.files.clear()
        self.users.clear()
        self.workloads.clear()

    def knows(self, runtime_class: str) -> bool:
        """Tell whether the container runtime has a handler; NVIDIA's come with the toolkit."""
        return self.toolkit or not runtime_class.startswith("nvidia")

    def prepares(self, pod: Object, store: Store) -> bool:
        """Tell whether a pod can be given its GPUs, which needs a loaded driver, whether NVIDIA's DRA driver or its container
        runtime gives them. Those that the kubelet does not know are not given, and stop no container.
        """
        if self.driver or self.host_driver:
            return True
        node = store.find("nodes", None, self.node)
        known = ((node or {}).get("status") or {}).get("allocatable") or {}
        wanted = [name for name, count in requests_of(pod["spec"]).items() if is_gpu(name) and count]
        return known.keys().isdisjoint(wanted) and not claims_gpus(pod, pod["spec"]["containers"], store)

    def _note(self, change: DriverChange, pod: str = "") -> None:
        workloads = tuple(sorted(set(self.workloads.values())))
        self._passed(Passage(self._now(), self.node, change, self.driver, workloads, pod))

    def configure(self, toolkit: bool) -> None:
        """Add NVIDIA's runtime classes to the container runtime, or take them out."""
        self.toolkit = toolkit
        self.changed()


def _without_gpus(status: Object) -> Object:
    return {**status, **{field: {name: value for name, value in (status.get(field) or {}).items() if not is_device(name)}
                         for field in ("capacity", "allocatable")}}


def _count(node: Object) -> int:
    """Return how many GPUs a node has: as its annotation or its status says, else one when it has the PCI label."""
    for text in (annotations_of(node).get(COUNT_ANNOTATION), labels_of(node).get("nvidia.com/gpu.count"),
                 ((node.get("status") or {}).get("capacity") or {}).get("nvidia.com/gpu")):
        if text and text.isdigit() and int(text):
            return int(text)
    return int(any(labels_of(node).get(label) == "true" for label in NFD_GPU_LABELS))
