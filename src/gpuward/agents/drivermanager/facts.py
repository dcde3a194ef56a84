"""What the driver manager decides by: the node, its pods, its machine, and how it was told to go about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpuward.agents.host import DeviceUser
from gpuward.model.views import PodView, Ref
from gpuward.upgrade.evictable_pods import EvictablePods

NOBODY: Final = EvictablePods()


@dataclass(frozen=True, slots=True)
class Settings:
    """Hold what the environment says; each field is a variable of NVIDIA's driver manager."""

    node: str
    namespace: str = "gpu-operator"
    eviction: bool = True
    auto_drain: bool = True
    force: bool = False
    delete_empty_dir: bool = False
    selector: str = ""
    timeout: float = 0.0
    """Seconds for an eviction, and again for a drain; with 0 the pods are asked until they go, in attempts of an hour."""
    custom_label: str = ""
    rdma: bool = False
    host_mofed: bool = False
    reinstall: bool = False
    digest: str = ""
    switches: bool = False
    """Whether NVSwitches are taken from drivers for virtual machines as GPUs are."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold what is so at one moment."""

    labels: Mapping[str, str] = field(default_factory=dict)
    policy: bool = False
    """Whether the operator upgrades the node's driver: it empties the node itself."""
    unschedulable: bool = False
    noted: bool = False
    """Whether the node has the note of a cordon of the driver manager's."""
    cordoned: bool = False
    """Whether the node's cordon is that one."""
    pause_noted: bool = False
    """Whether the node has the note of a pause of the driver manager's."""
    noted_labels: tuple[str, ...] = ()
    """Labels of people's own that this note names."""
    loaded: bool = False
    modules: tuple[str, ...] = ()
    """Those of the driver that are loaded, in the order in which they can be unloaded."""
    holders: tuple[str, ...] = ()
    """Modules that use one of those and are none of them."""
    nouveau: bool = False
    digest: str = ""
    """That of the driver that is loaded, as its container left it."""
    operands: tuple[PodView, ...] = ()
    """Pods that go by a label, and are there still."""
    validations: tuple[PodView, ...] = ()
    """Pods that the validator has started to try a GPU, and that are there still: no label makes them go."""
    dra_plugins: tuple[PodView, ...] = ()
    claimants: tuple[PodView, ...] = ()
    """Pods that hold allocated claims of the DRA driver."""
    to_evict: EvictablePods = NOBODY
    to_drain: EvictablePods = NOBODY
    stuck: str = ""
    """What the kernel was asked for last and has not done yet, and what may keep it from that."""
    undone: str = ""
    """What was loaded, bound or mounted again after it was taken away, in words."""
    refused: Mapping[Ref, str] = field(default_factory=dict)
    """Pods whose eviction was refused last, with the refusal."""
    gpu_pods: tuple[PodView, ...] = ()
    """Pods that were given GPUs and run, whether they have a device open now or not; those aside that go with the labels."""
    machines: tuple[PodView, ...] = ()
    """Pods that were given what virtual machines are, and have not ended. A network device may have such a name, too."""
    machine_users: tuple[DeviceUser, ...] = ()
    """Processes that have one of the devices in `vfio` open."""
    device_users: tuple[DeviceUser, ...] = ()
    """Processes that use a GPU, with the pods' names where they are known; those aside that go with the labels."""
    going_users: tuple[DeviceUser, ...] = ()
    """Processes that use a GPU, and that go with the labels."""
    mounted: bool = False
    pid_file: bool = False
    vfio: tuple[str, ...] = ()
    """Addresses of what is bound to a driver for virtual machines and goes from there."""
    mofed: str = ""
    """What of Mellanox' driver is missing; empty where nothing is to be waited for."""
