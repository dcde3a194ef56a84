"""The machine under a node: its GPUs, the loaded driver, who uses it, and the status files of the GPU stack.

The files are those of /run/nvidia/validations, by name; operands wait for them and write them as they do on a host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuward.names import GPU_PRODUCT, NFD_GPU_LABELS
from gpuward.sandbox.sim.gpus import DEFAULT_MODEL, GpuModel, model_of
from gpuward.sandbox.sim.objects import Object, annotations_of, labels_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL_ANNOTATION: Final = "sandbox.gpuward.io/gpu-model"
COUNT_ANNOTATION: Final = "sandbox.gpuward.io/gpus"
HOST_DRIVER_ANNOTATION: Final = "sandbox.gpuward.io/host-driver"
"""The version of a driver that is installed on the host itself."""

DRIVER_CONTAINER_READY: Final = ".driver-ctr-ready"
DRIVER_READY: Final = "driver-ready"
TOOLKIT_READY: Final = "toolkit-ready"
CUDA_READY: Final = "cuda-ready"
PLUGIN_READY: Final = "plugin-ready"


class Machine:
    """Hold the state of one host that outlives its pods.

    `changed` is called after every change that somebody on the node may be waiting for.
    """

    def __init__(self, node: Object, changed: Callable[[], None]) -> None:
        self.node = name_of(node)
        self.gpus = _count(node)
        self.model: GpuModel = model_of(
            annotations_of(node).get(MODEL_ANNOTATION) or labels_of(node).get(GPU_PRODUCT) or DEFAULT_MODEL)
        self.host_driver = annotations_of(node).get(HOST_DRIVER_ANNOTATION, "")
        self.files: set[str] = set()
        self.driver = self.host_driver
        self.digest = ""
        self.toolkit = bool(self.host_driver)
        """Whether the container runtime knows NVIDIA's runtime classes."""
        self.users: dict[str, str] = {}
        """Who has the GPUs open: pod uid -> namespace/name."""
        self.changed = changed

    def write(self, name: str) -> None:
        """Write a status file."""
        self.files.add(name)
        self.changed()

    def erase(self, *names: str) -> None:
        """Remove status files, if they are there."""
        if self.files.intersection(names):
            self.files.difference_update(names)
            self.changed()

    def open(self, uid: str, who: str) -> None:
        """Note that a pod uses the GPUs."""
        self.users[uid] = who

    def close(self, uid: str) -> None:
        """Note that a pod no longer uses the GPUs."""
        if self.users.pop(uid, None) is not None:
            self.changed()

    def load(self, version: str, digest: str) -> None:
        """Load the kernel modules of a driver version."""
        self.driver, self.digest = version, digest
        self.changed()

    def unload(self) -> str:
        """Unload the kernel modules; return what prevents it, nothing when they are out."""
        if self.users:
            return "driver is in use by " + ", ".join(sorted(self.users.values()))
        self.driver, self.digest = "", ""
        self.changed()
        return ""

    def configure(self, toolkit: bool) -> None:
        """Add NVIDIA's runtime classes to the container runtime, or take them out."""
        self.toolkit = toolkit
        self.changed()


def _count(node: Object) -> int:
    """Return how many GPUs a node has: as its annotation or its status says, else one when it has the PCI label."""
    for text in (annotations_of(node).get(COUNT_ANNOTATION), labels_of(node).get("nvidia.com/gpu.count"),
                 ((node.get("status") or {}).get("capacity") or {}).get("nvidia.com/gpu")):
        if text and text.isdigit() and int(text):
            return int(text)
    return int(any(labels_of(node).get(label) == "true" for label in NFD_GPU_LABELS))
