"""What the validator decides by, and how it was told to go about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuward.agents.host import Ran

WORKLOAD_TYPE: Final = "workload-type"
"""The file, beside the status files, that says what a node is for."""
OF_MACHINES: Final = ("vfio-pci", "vgpu-manager", "vgpu-devices", "cc-manager")
"""Components of nodes for virtual machines, which have a validator of their own."""

SEVERAL: Final = {
    "vgpu-manager": ("vgpu-manager-ready", "host-vgpu-manager-ready"),
    "driver": ("driver-ready", "gdrcopy-ready", "nvidia-fs-ready", "nvidia-peermem-ready")}
"""Status files of components that have more than one."""


def status_files(component: str) -> tuple[str, ...]:
    """Return the status files of which a component leaves one, or that of the driver some."""
    return SEVERAL.get(component, (f"{component}-ready",))


def left_by(component: str, name: str) -> bool:
    """Tell whether the validator that validates a component may have left a file.

    A node that changes its kind has both for a while. NVIDIA's for containers removes all that ends with -ready, its other one
    everything.
    """
    of_machines = name == WORKLOAD_TYPE or any(name in status_files(each) for each in OF_MACHINES)
    return of_machines if component in OF_MACHINES else is_status_file(name) and not of_machines


def is_status_file(name: str) -> bool:
    """Tell whether a file is one of validators, and not one that a driver's container has left."""
    return (name.endswith("-ready") or name == WORKLOAD_TYPE) and not name.startswith(".")


@dataclass(frozen=True, slots=True)
class ValidatorSettings:
    """Hold what flags and environment say, as NVIDIA's validator has them."""

    component: str
    node: str = ""
    namespace: str = ""
    wait: bool = False
    workload: bool = True
    output: str = "/run/nvidia/validations"
    every: float = 5.0
    port: int = 0
    default_workload: str = "vm-passthrough"
    dev_char: bool = True
    host_root: str = "/"
    install_dir: str = "/run/nvidia/driver"
    install_dir_here: str = "/run/nvidia/driver"
    skip_gpu_init: bool = False
    skip: bool = False
    rdma: bool = False
    host_mofed: bool = False
    workload_pod: Mapping[str, str] = field(default_factory=dict)
    """What the environment says of the image of workload pods: its name, pull policy, pull secrets and runtime class."""


@dataclass(frozen=True, slots=True)
class PciGpu:
    """See one of NVIDIA's GPUs on the PCI bus."""

    address: str
    driver: str = ""
    functions: int | None = None
    """How many virtual functions are enabled; None where it has none."""
    all_functions: int = 0


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Hold what is so about a node's driver."""

    wsl: bool = False
    host_smi: Ran | None = None
    """How the host's own nvidia-smi ended; None where it has none."""
    managed: bool = False
    """Whether a driver DaemonSet of the operator is there."""
    container_ready: str | None = None
    """What the driver's startup probe left; None while it has left nothing."""
    smi: Ran | None = None
    """How nvidia-smi of the driver's root ended; None where it is not there."""
    library: str = ""
    """The driver's libnvidia-ml.so.1; empty where it is not there."""
    modules: frozenset[str] = frozenset()
    device_root: bool = False
    """Whether the driver's root has a folder /dev of its own."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Hold what device numbers are made of."""

    gpus: int = 0
    majors: Mapping[str, int] = field(default_factory=dict)
    mig_minors: Mapping[str, int] = field(default_factory=dict)
