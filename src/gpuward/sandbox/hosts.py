"""What runs on machines whose GPUs serve virtual machines: the drivers of hosts, and the plugin that offers their devices.

A host's driver is loaded like one for containers, and no other can be beside it: `vfio-pci`, to which the GPUs are bound, or that
of the vGPU manager. Virtual machines are pods that hold what the plugin offers.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from gpuward.sandbox.driver import driver_version
from gpuward.sandbox.programs import GpuProgram
from kubesandbox.sim.programs import Pause, Waits, Watch

if TYPE_CHECKING:
    from kubesandbox.sim.objects import Object

VFIO: Final = "vfio-pci"
VM_RESOURCE: Final = "nvidia.com/GH100_H100_SXM5_80GB"
"""As the device plugin for virtual machines names a whole GPU: by its model."""


class HostDriver(GpuProgram):
    """Be the container that brings the driver of a host, and takes it along: GPUs that a virtual machine has stay bound."""

    def run(self, now: float) -> Waits:
        yield Pause(now + self.delays.manager_seconds)
        if why := self.machine.load(self.brings(), "", self.place.who):
            self.message = why
            return 1
        self.machine.serve(self.place.who)
        self.say(f"{self.machine.driver} has {self.machine.gpus} GPUs")
        self.ready = True
        while True:
            yield Pause(float("inf"))

    @abstractmethod
    def brings(self) -> str:
        """Return the driver's name."""

    def end(self) -> None:
        if self.ready:
            self.machine.leave(self.place.who)
            self.machine.unload(self.place.who)


class VfioManager(HostDriver):
    """Be the vfio manager: bind all GPUs to vfio-pci, and unbind them in the end."""

    def brings(self) -> str:
        return VFIO


class VgpuManager(HostDriver):
    """Be the vGPU manager."""

    def brings(self) -> str:
        return f"vgpu-{driver_version(self.place.container.get('image') or '')}"


class HostDevicePlugin(GpuProgram):
    """Be the device plugin for virtual machines: it offers GPUs once the host's driver has them."""

    _offers = False

    def run(self, now: float) -> Waits:
        while not self.machine.server:
            now = yield Watch()
        yield Pause(now + self.delays.plugin_seconds)
        self.ready = self._offers = True
        self._offer(self.machine.gpus)
        while True:
            yield Pause(float("inf"))

    def end(self) -> None:
        self._offers = False
        self._offer(0)

    def registered(self) -> None:
        if self._offers:
            self._offer(self.machine.gpus)

    def _offer(self, count: int) -> None:
        if self.world.store.find("nodes", None, self.machine.node) is None:
            return

        def change(obj: Object) -> None:
            for field in ("capacity", "allocatable"):
                obj["status"][field] = {**(obj["status"].get(field) or {}), VM_RESOURCE: str(count)}
        self.world.store.patch_status("nodes", None, self.machine.node, change)
