"""The other operands of the GPU stack: toolkit, device plugin, feature discovery and the validator's steps.

Containers are recognised by the names that NVIDIA's DaemonSets give them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gpuward.sandbox.sim.demands import is_gpu, quantity
from gpuward.sandbox.sim.driver import DriverContainer, DriverManager
from gpuward.sandbox.sim.faults import FaultKind
from gpuward.sandbox.sim.gpus import discovered_labels
from gpuward.sandbox.sim.machine import CUDA_READY, DRIVER_CONTAINER_READY, DRIVER_READY, PLUGIN_READY, TOOLKIT_READY
from gpuward.sandbox.sim.objects import name_of
from gpuward.sandbox.sim.programs import Pause, Place, Program, Service, Task, Waits, Watch

if TYPE_CHECKING:
    from gpuward.sandbox.sim.objects import Object

GPU_RESOURCE: Final = "nvidia.com/gpu"
PLUGIN_WAIT_SECONDS: Final = 150.0
VALIDATIONS: Final = (DRIVER_READY, TOOLKIT_READY, CUDA_READY, PLUGIN_READY)


class WaitForToolkit(Program):
    """Be the init container of an operand that loops until the toolkit's status file is there."""

    def run(self, now: float) -> Waits:
        yield from self.until(now, lambda: TOOLKIT_READY in self.machine.files)
        return 0


class Validation(Program):
    """Be one step of nvidia-validator: remove the own status file, check, write it.

    With WITH_WAIT the check is repeated until it holds; without, the container fails and the kubelet starts it again.
    """

    file = ""
    always_waits = False

    def holds(self) -> bool:
        """Tell whether what is to be validated is there."""
        raise NotImplementedError

    def run(self, now: float) -> Waits:
        self.machine.erase(self.file)
        if self.always_waits or self.place.env("WITH_WAIT") == "true":
            now = yield from self.until(now, self.holds)
        now = yield Pause(now + self.world.delays.validator_seconds)
        while self.world.faults.hits(FaultKind.VALIDATOR_NEVER_READY, self.machine.node, name_of(self.place.pod)):
            now = yield Watch()
        if not self.holds():
            self.message = f"{self.place.container['name']}: the check failed"
            return 1
        self.settle()
        return 0

    def settle(self) -> None:
        self.machine.write(self.file)


class DriverValidation(Validation):
    """Validate that the driver container, or a driver on the host, is ready."""

    file = DRIVER_READY

    def holds(self) -> bool:
        return bool(self.machine.host_driver) or (
            DRIVER_CONTAINER_READY in self.machine.files and bool(self.machine.driver))


class ToolkitValidation(Validation):
    """Validate that a container gets the driver injected."""

    file = TOOLKIT_READY

    def holds(self) -> bool:
        return self.machine.toolkit and bool(self.machine.driver)


class CudaValidation(Validation):
    """Validate that a CUDA program runs."""

    file = CUDA_READY

    def holds(self) -> bool:
        return self.machine.toolkit and bool(self.machine.driver)


class PluginValidation(Validation):
    """Validate that the node offers GPUs; NVIDIA's gives up after 30 looks of 5 seconds."""

    file = PLUGIN_READY

    def holds(self) -> bool:
        node = self.world.store.find("nodes", None, self.machine.node)
        capacity = ((node or {}).get("status") or {}).get("capacity") or {}
        return any(is_gpu(name) and quantity(value) >= 1 for name, value in capacity.items())

    def run(self, now: float) -> Waits:
        self.machine.erase(self.file)
        deadline = now + PLUGIN_WAIT_SECONDS
        while not self.holds() and now < deadline:
            now = yield Watch(deadline)
        return (yield from super().run(now))


class ValidatorIdle(Service):
    """Be the validator's main container: it idles, and takes the status files with it when it stops."""

    def stop(self) -> None:
        self.machine.erase(*VALIDATIONS)


class Toolkit(Program):
    """Be the toolkit's container: with the driver there, make NVIDIA's runtime classes known to the runtime."""

    def run(self, now: float) -> Waits:
        self.ready = True
        now = yield from self.until(now, lambda: DRIVER_READY in self.machine.files)
        yield Pause(now + self.world.delays.toolkit_seconds)
        self.machine.configure(True)
        while True:
            yield Pause(math.inf)

    def settle(self) -> None:
        self.machine.configure(True)

    def end(self) -> None:
        self.machine.configure(bool(self.machine.host_driver))


class DevicePlugin(Program):
    """Be the device plugin: register the GPUs with the kubelet; without it the kubelet has none to give."""

    def run(self, now: float) -> Waits:
        self.ready = True
        now = yield from self.until(now, lambda: DRIVER_READY in self.machine.files)
        yield Pause(now + self.world.delays.plugin_seconds)
        self.machine.open(self.place.uid, self.place.who)
        self._offer(self.machine.gpus)
        while True:
            yield Pause(math.inf)

    def end(self) -> None:
        self.machine.close(self.place.uid)
        self._offer(0)

    def _offer(self, count: int) -> None:
        node = self.world.store.find("nodes", None, self.machine.node)
        if node is None:
            return

        def change(obj: Object) -> None:
            status = obj["status"]
            status["allocatable"] = {**(status.get("allocatable") or {}), GPU_RESOURCE: str(count)}
            if count:
                # The kubelet keeps the capacity of a plugin that has gone, and offers none of it.
                status["capacity"] = {**(status.get("capacity") or {}), GPU_RESOURCE: str(count)}
        if count or GPU_RESOURCE in ((node.get("status") or {}).get("capacity") or {}):
            self.world.store.patch_status("nodes", None, self.machine.node, change)


class FeatureDiscovery(Program):
    """Be GPU feature discovery: label the node with what the driver says about its GPUs."""

    def run(self, now: float) -> Waits:
        self.ready = True
        while not self.machine.driver:
            now = yield Watch()
        yield Pause(now + self.world.delays.discovery_seconds)
        labels = discovered_labels(self.machine.model, self.machine.gpus, self.machine.driver)
        if self.world.store.find("nodes", None, self.machine.node) is not None:
            self.world.store.modify("nodes", None, self.machine.node,
                                    lambda node: node["metadata"].setdefault("labels", {}).update(labels))
        while True:
            yield Pause(math.inf)


_INIT: Final[dict[str, type[Program]]] = {
    "k8s-driver-manager": DriverManager,
    "driver-validation": DriverValidation,
    "cuda-validation": CudaValidation,
    "plugin-validation": PluginValidation,
}
_MAIN: Final[dict[str, type[Program]]] = {
    "nvidia-driver-ctr": DriverContainer,
    "nvidia-container-toolkit-ctr": Toolkit,
    "nvidia-device-plugin": DevicePlugin,
    "gpu-feature-discovery": FeatureDiscovery,
    "nvidia-operator-validator": ValidatorIdle,
}


def program_for(place: Place, *, init: bool) -> Program:
    """Return what runs in a container, by its name."""
    name = place.container["name"]
    if not init:
        return _MAIN.get(name, Service)(place)
    if name == "toolkit-validation":
        # In the validator it makes the check; in the other operands it waits for the validator's result.
        return (ToolkitValidation if place.env("COMPONENT") == "toolkit" else WaitForToolkit)(place)
    return _INIT.get(name, Task)(place)
