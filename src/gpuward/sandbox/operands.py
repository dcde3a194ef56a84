"""The other operands of the GPU stack: toolkit, device plugin and feature discovery; and which program a container runs.

Containers are recognised by the names that NVIDIA's DaemonSets give them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from gpuward.names import NO_HEALTH_CHECKS
from gpuward.sandbox.driver import DriverContainer, DriverManagerProgram
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.gpus import discovered_labels
from gpuward.sandbox.hosts import HostDevicePlugin, VfioManager, VgpuManager
from gpuward.sandbox.machine import DRIVER_READY
from gpuward.sandbox.programs import Echo, GpuProgram, GpuService
from gpuward.sandbox.validator import (
    WORKLOADS,
    CudaValidation,
    DriverValidation,
    HostValidation,
    PluginValidation,
    ToolkitValidation,
    Validation,
    ValidatorIdle,
    WaitForToolkit,
)
from kubesandbox.sim.kubelet import PLUGIN_GRACE, WITHDRAWN_QUEUE
from kubesandbox.sim.objects import name_of
from kubesandbox.sim.programs import Pause, Pausing, Place, Program, Task, Verdict, Waits, Watch

if TYPE_CHECKING:
    from kubesandbox.sim.objects import Object

GPU_RESOURCE: Final = "nvidia.com/gpu"


class Crashing(GpuProgram):
    """Be a container that a fault of its own ends with an error, at once and whenever it starts."""

    fault: FaultKind
    complaint: str
    """What it says when it crashes."""

    def run(self, now: float) -> Waits:
        if self._hit():
            return self._crash()
        self.ready = True
        return (yield from self.work(now))

    def driver(self, now: float) -> Pausing:
        """Wait until the driver has been validated."""
        if DRIVER_READY not in self.machine.files:
            self.say(f"waiting for the driver to be validated ({DRIVER_READY})")
        return (yield from self.until(now, lambda: DRIVER_READY in self.machine.files))

    @abstractmethod
    def work(self, now: float) -> Waits:
        """Do what the container is there for."""

    def poll(self, now: float) -> Verdict:
        if self.ready and self._hit():
            return Verdict(exit_code=self._crash(), message=self.message)
        return super().poll(now)

    def _hit(self) -> bool:
        return self.world.faults.hits(self.fault, self.machine.node, name_of(self.place.pod))

    def _crash(self) -> int:
        self.message = self.complaint
        return 1


class ToolkitProgram(Crashing):
    """Be the toolkit's container: with the driver there, make NVIDIA's runtime classes known to the runtime."""

    fault = FaultKind.TOOLKIT_CRASH
    complaint = "could not set up the container runtime: /run/containerd/containerd.sock: connection refused"

    def work(self, now: float) -> Waits:
        now = yield from self.driver(now)
        yield Pause(now + self.delays.toolkit_seconds)
        self.machine.configure(True)
        self.say("the container runtime knows NVIDIA's runtime classes now")
        while True:
            yield Pause(math.inf)

    def settle(self) -> None:
        self.machine.configure(True)

    def end(self) -> None:
        self.machine.configure(bool(self.machine.host_driver))


class DevicePluginProgram(Crashing):
    """Be the device plugin: register the GPUs with the kubelet; without it the kubelet has none to give."""

    fault = FaultKind.DEVICE_PLUGIN_CRASH
    complaint = "could not initialise NVML: unknown error"
    _offers = False

    def work(self, now: float) -> Waits:
        now = yield from self.driver(now)
        yield Pause(now + self.delays.plugin_seconds)
        if not {"all", "xids"}.intersection(self.place.env(NO_HEALTH_CHECKS).lower().split(",")):
            self.machine.open(self.place.key, self.place.who)
        self._offers = True
        self._offer(self.machine.gpus)
        self.say(f"offering {self.machine.gpus} {GPU_RESOURCE} to the kubelet")
        while True:
            yield Pause(math.inf)

    def end(self) -> None:
        if self._offers:
            self.machine.withdrawn[GPU_RESOURCE] = self.world.now()
            self.world.queue.add_at(WITHDRAWN_QUEUE, self.machine.node, self.world.now() + PLUGIN_GRACE)
        self._offers = False
        self.machine.close(self.place.key)
        self._offer(0)

    def registered(self) -> None:
        if self._offers:
            self._offer(self.machine.gpus)

    def _offer(self, count: int) -> None:
        node = self.world.store.find("nodes", None, self.machine.node)
        if node is None:
            return

        def change(obj: Object) -> None:
            status = obj["status"]
            status["allocatable"] = {**(status.get("allocatable") or {}), GPU_RESOURCE: str(count)}
            if count:
                # The kubelet keeps the capacity of a plugin that has gone for some minutes, and offers none of it.
                status["capacity"] = {**(status.get("capacity") or {}), GPU_RESOURCE: str(count)}
        if count:
            self.machine.withdrawn.pop(GPU_RESOURCE, None)
        if count or GPU_RESOURCE in ((node.get("status") or {}).get("capacity") or {}):
            self.world.store.patch_status("nodes", None, self.machine.node, change)


LOOKS_AGAIN_AFTER: Final = 60.0
"""Seconds after which GPU feature discovery labels a node anew."""


class FeatureDiscovery(GpuProgram):
    """Be GPU feature discovery: label the node with what the driver says about its GPUs; NVIDIA's looks again each minute."""

    def run(self, now: float) -> Waits:
        self.ready = True
        told, takes = "", self.delays.discovery_seconds
        while True:
            while self.machine.driver in ("", told):
                now = yield Watch()
            now = yield Pause(now + takes)
            if self.machine.driver:
                self._label()
                told, takes = self.machine.driver, LOOKS_AGAIN_AFTER

    def _label(self) -> None:
        labels = discovered_labels(self.machine.model, self.machine.gpus, self.machine.driver)
        if self.world.store.find("nodes", None, self.machine.node) is not None:
            self.world.store.modify("nodes", None, self.machine.node,
                                    lambda node: node["metadata"].setdefault("labels", {}).update(labels))


_CHECKS: Final[dict[str, type[Validation]]] = {
    "driver": DriverValidation,
    "toolkit": ToolkitValidation,
    "cuda": CudaValidation,
    "plugin": PluginValidation,
    "vgpu-manager": HostValidation,
}
_MAIN: Final[dict[str, type[Program]]] = {
    "nvidia-driver-ctr": DriverContainer,
    "nvidia-container-toolkit-ctr": ToolkitProgram,
    "nvidia-device-plugin": DevicePluginProgram,
    "gpu-feature-discovery": FeatureDiscovery,
    "nvidia-operator-validator": ValidatorIdle,
    "nvidia-vfio-manager": VfioManager,
    "nvidia-vgpu-manager-ctr": VgpuManager,
    "nvidia-sandbox-device-plugin-ctr": HostDevicePlugin,
    "nvidia-kata-sandbox-device-plugin-ctr": HostDevicePlugin,
    **dict.fromkeys(WORKLOADS, Echo),
}


def program_for(place: Place, *, init: bool) -> Program:
    """Return what runs in a container, by its name; one whose command does nothing ends at once, whatever its name."""
    name = place.container["name"]
    if place.container.get("command") == ["true"]:
        return Echo(place)
    if not init:
        return _MAIN.get(name, GpuService)(place)
    if name == "k8s-driver-manager":
        return DriverManagerProgram(place)
    if name.endswith("-validation") and place.env("COMPONENT") in _CHECKS:
        return _CHECKS[place.env("COMPONENT")](place)
    # In operands that are not the validator this one waits for the validator's result.
    return (WaitForToolkit if name == "toolkit-validation" else Task)(place)
