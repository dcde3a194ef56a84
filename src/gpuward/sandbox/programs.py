"""What every container on a machine with GPUs can do: hold GPUs, and have them open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.gpus import claims_gpus, devices_wanted
from gpuward.sandbox.machine import GpuMachine
from kubesandbox.sim.objects import annotations_of
from kubesandbox.sim.programs import Program, Service, Waits

if TYPE_CHECKING:
    from kubesandbox.sim.programs import Place

OPENS_GPUS: Final = "sandbox.gpuward.io/opens-gpus"
"""Pod annotation: `false` for a pod that was given GPUs and has none of them open, such as a notebook in which nothing runs;
`true` for one that has them open without having asked for any."""
GPU_CLIENTS: Final = ("nvidia-dcgm-exporter", "nvidia-dcgm-ctr")
"""Containers of operands that keep the driver open while they run, beside the device plugin."""


class GpuProgram(Program):
    """Run in one container on a machine that may have GPUs."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        machine, delays = place.machine, place.world.delays
        assert isinstance(machine, GpuMachine)
        assert isinstance(delays, GpuDelays)
        self.machine: GpuMachine = machine
        self.delays = delays


class Echo(GpuProgram):
    """Be a container that says a word and ends, as the main containers of the validator's workload pods do."""

    def run(self, now: float) -> Waits:
        yield from ()
        return 0


class GpuService(GpuProgram, Service):
    """Be a container of no particular kind; it holds the GPUs it has asked for."""

    def begin(self) -> None:
        wanted, opens = self._wants_gpus(), annotations_of(self.place.pod).get(OPENS_GPUS)
        if wanted or opens == "true":
            self.machine.give(self.place.key, self.place.who)
        if opens == "true" or (opens is None and (wanted or self.place.container["name"] in GPU_CLIENTS)):
            self.machine.open(self.place.key, self.place.who)

    def end(self) -> None:
        self.machine.close(self.place.key)

    def _wants_gpus(self) -> bool:
        return bool(devices_wanted({"containers": [self.place.container]})) or claims_gpus(
            self.place.pod, [self.place.container], self.world.store)
