"""A cluster in one process whose machines have GPUs, and ways for gpuward's client to talk to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.hardware import GpuHardware
from gpuward.sandbox.known_faults import FAULT_ANNOTATION
from gpuward.sandbox.machine import GpuMachine
from gpuward.sandbox.transport import InProcessTransport
from gpuward.sandbox.troubles import Troubles
from kubesandbox import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuward.sandbox.machine import Passage
    from kubesandbox.store import Store


class Sandbox(cluster.Sandbox):
    """Be a Kubernetes cluster in this process that a GPU stack can be installed on."""

    def __init__(self, *, seed: int = 0, delays: GpuDelays | None = None,
                 watch_delay: Callable[[str], float] | None = None, fill: Callable[[Store], None] | None = None) -> None:
        self._gpus, self._delays = GpuHardware(), delays or GpuDelays()
        super().__init__(seed=seed, delays=self._delays, watch_delay=watch_delay, hardware=self._gpus, fill=fill)
        self._troubles = Troubles(self)
        self._transports: list[InProcessTransport] = []

    @property
    def delays(self) -> GpuDelays:
        """Return how long things take; may be changed at any time."""
        return self._delays

    @property
    def passages(self) -> list[Passage]:
        """Return what has happened to the drivers of all machines, oldest first, with the workloads that had GPUs then."""
        return self._gpus.passages

    def machine(self, node: str) -> GpuMachine:
        """Return the machine under a node, and what is true of it; raises NotFound when there is none of that name.

        A machine outlives its Node, where that is deleted through the API.
        """
        machine = super().machine(node)
        assert isinstance(machine, GpuMachine)
        return machine

    def trouble(self, node: str, *faults: str) -> None:
        """Let faults be in force on a node, those of `known_faults` by name, and no others any more."""
        def change(obj: dict[str, Any]) -> None:
            notes = obj["metadata"].setdefault("annotations", {})
            notes.pop(FAULT_ANNOTATION, None)
            if faults:
                notes[FAULT_ANNOTATION] = ",".join(faults)
        self.store.modify("nodes", None, node, change)

    def transport(self) -> InProcessTransport:
        """Return a way for a client in this process to talk to the API server; it is closed by `stop`."""
        transport = InProcessTransport(self.api)
        self._transports.append(transport)
        return transport

    async def stop(self) -> None:
        """Stop the cluster and whatever serves it; raises what the simulation itself has failed with, if it has."""
        for transport in self._transports:
            await transport.close()
        await super().stop()
