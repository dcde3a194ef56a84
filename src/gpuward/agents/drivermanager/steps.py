"""The steps of the driver manager, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuward.model.views import Ref


class Wait(StrEnum):
    """Name what is waited for; each has a deadline of its own."""

    OPERANDS = "operands"
    DRA_PLUGIN = "DRA plugin"
    EVICTION = "eviction"
    DRAIN = "drain"
    DEVICES = "devices"
    MACHINES = "machines"
    MODULES = "modules"
    ROOT = "root"
    VFIO = "vfio"
    NOUVEAU = "nouveau"
    MOFED = "MOFED"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Cordon:
    """Let no new pods come, and remember whose cordon it is."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask pods to go."""

    pods: tuple[Ref, ...]
    wait: Wait


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Change the labels by which operands come and go."""

    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Look again later."""

    wait: Wait
    missing: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Unload kernel modules, in this order."""

    modules: tuple[str, ...]
    wait: Wait


@dataclass(frozen=True, slots=True)
class Clean:
    """Detach what is mounted as the driver's root, and remove its process's file."""


@dataclass(frozen=True, slots=True)
class UnbindVfio:
    """Take devices from drivers for virtual machines."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the node back: labels, and the cordon if it is ours."""

    labels: Mapping[str, str]
    uncordon: bool
    forget: bool = False
    """Whether the note of a cordon goes that is lifted already."""
    forget_pause: bool = False
    """Whether the note of a pause goes."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End with an error; the node is given back first."""

    why: str


Step = Cordon | Evict | SetLabels | WaitFor | Unload | Clean | UnbindVfio | Finish | GiveUp
