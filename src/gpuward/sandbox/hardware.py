"""The plug-in that gives a cluster machines with GPUs, on which a GPU stack does what it does on a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuward.sandbox.gpus import is_device
from gpuward.sandbox.machine import GpuMachine, Passage
from gpuward.sandbox.operands import program_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.sim.objects import Object
    from kubesandbox.sim.programs import Place, Program


class GpuHardware:
    """Be the machines of one sandbox; its delays must be GpuDelays."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []
        """What has happened to the drivers of all machines, oldest first."""

    def machine(self, node: Object, changed: Callable[[], None], now: Callable[[], float]) -> GpuMachine:
        """Make the machine under a node, with the GPUs that the node tells of."""
        return GpuMachine(node, changed, now, self.passages.append)

    def is_device(self, resource: str) -> bool:
        """Tell whether a resource means GPUs or parts of them."""
        return is_device(resource)

    def program(self, place: Place, *, init: bool) -> Program:
        """Return what runs in a container, by its name."""
        return program_for(place, init=init)
