"""What the validator decides by, and how it was told to go about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuward.agents.host import Ran

WORKLOAD_TYPE: Final = "workload-type"
"""The file, beside the status files, that says what a node is for."""


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
