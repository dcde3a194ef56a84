"""The port through which a cluster gets machines with more in them than a CPU, and what runs on such machines.

A plug-in is given to `Sandbox(hardware=...)`. It makes the machine under each node, says which resources its devices have, and
which program a container runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kubesandbox.sim.machine import Machine
from kubesandbox.sim.programs import Place, Program, Service, Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubesandbox.sim.objects import Object


class Hardware(Protocol):
    """Say what the machines of one cluster are, and what their containers do."""

    def machine(self, node: Object, changed: Callable[[], None], now: Callable[[], float]) -> Machine:
        """Make the machine under a node that is new; `changed` and `now` as in `Machine`, in unix seconds."""
        ...

    def is_device(self, resource: str) -> bool:
        """Tell whether a resource is offered by a device plugin: the kubelet gives it out, and has none after a boot."""
        ...

    def program(self, place: Place, *, init: bool) -> Program:
        """Return what runs in a container, or in an init container."""
        ...


class PlainHardware:
    """Be machines without devices, whose containers are of no particular kind."""

    def machine(self, node: Object, changed: Callable[[], None], now: Callable[[], float]) -> Machine:
        """Make a machine."""
        del now
        return Machine(node, changed)

    def is_device(self, resource: str) -> bool:
        """Say no: there are none."""
        del resource
        return False

    def program(self, place: Place, *, init: bool) -> Program:
        """Return a task for an init container, a service for any other."""
        return (Task if init else Service)(place)
