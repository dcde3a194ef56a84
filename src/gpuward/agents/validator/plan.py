"""What the validator makes of what it finds: what is missing and what to do about it, or the status files that say that all is
well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuward.agents.host import Ran, whole
from gpuward.agents.validator.facts import DeviceFacts, DriverFacts, PciGpu, ValidatorSettings

FEATURES: Final = {
    "GDRCOPY_ENABLED": ("gdrdrv", "gdrcopy-ready"), "GDS_ENABLED": ("nvidia_fs", "nvidia-fs-ready"),
    "GPU_DIRECT_RDMA_ENABLED": ("nvidia_peermem", "nvidia-peermem-ready")}
"""Kernel modules and status files of what a driver container may bring besides, by its switches."""
MODULES: Final = {"nvidia-fs": "nvidia_fs", "gdrcopy": "gdrdrv", "nvidia-peermem": "nvidia_peermem"}
VFIO: Final = ("vfio-pci", "nvgrace_gpu_vfio_pci")
WORKLOADS: Final = ("container", "vm-passthrough", "vm-vgpu")
RESOURCES: Final = ("nvidia.com/mig-", "nvidia.com/gpu")
"""Prefixes of what the device plugin offers; parts of GPUs count first."""
MODESET_MINOR, CONTROL_MINOR = 254, 255


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say what is missing, or what to leave for those who wait."""

    missing: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Contents of status files by name."""


def driver(facts: DriverFacts, settings: ValidatorSettings) -> Verdict:
    """Judge the driver: the host's, or the one of the driver's container."""
    if facts.wsl or (facts.host_smi is not None and facts.host_smi.code == 0):
        root = settings.host_root
        return Verdict(files={"driver-ready": _driver_ready(root, "/host", root, "/host", host=True)})
    if facts.managed and facts.container_ready is None:
        own = "" if facts.host_smi is None else (
            f"; if the host has a driver of its own: its nvidia-smi {_ended(facts.host_smi)}, see `dmesg` on this node")
        return Verdict("the driver container is not ready: see `kubectl logs` of the driver pod on this node, or `gpuward "
                       f"explain` of the node where it has none{own}")
    if facts.host_smi is not None and not facts.managed and not (facts.library and facts.smi is not None):
        return Verdict(f"the host's nvidia-smi {_ended(facts.host_smi)}: see `dmesg` on this node, and its driver")
    if not facts.library:
        return Verdict(f"there is no libnvidia-ml.so.1 below {settings.install_dir}: no driver is installed there")
    if facts.smi is None:
        return Verdict(f"there is no nvidia-smi below {settings.install_dir}: no driver is installed there")
    if facts.smi.code != 0:
        return Verdict(f"nvidia-smi {_ended(facts.smi)}: see `dmesg` and `kubectl logs` of the driver pod on this node")
    on = _switched_on(facts.container_ready or "") if facts.managed else []
    for name in on:
        module, _ = FEATURES[name]
        if module not in facts.modules:
            return Verdict(f"{name} is true, and the module {module} is not loaded: see the driver pod's other containers")
    if facts.device_root:
        devices, devices_there = settings.install_dir, "/driver-root"
    else:
        devices, devices_there = settings.host_root, "/host"
    ready = _driver_ready(settings.install_dir, "/driver-root", devices, devices_there, host=False)
    return Verdict(files={**{FEATURES[name][1]: "" for name in on}, "driver-ready": ready})


def _driver_ready(root: str, root_there: str, devices: str, devices_there: str, *, host: bool) -> str:
    return (f"IS_HOST_DRIVER={str(host).lower()}\nNVIDIA_DRIVER_ROOT={root}\nDRIVER_ROOT_CTR_PATH={root_there}\n"
            f"NVIDIA_DEV_ROOT={devices}\nDEV_ROOT_CTR_PATH={devices_there}\n")


def _switched_on(text: str) -> list[str]:
    pairs = [line.partition(":") for line in text.splitlines()]
    return [name.strip() for name, _, value in pairs if name.strip() in FEATURES and value.strip().lower() == "true"]


def _ended(ran: Ran) -> str:
    words = " ".join(ran.output.split())[-300:]
    how = "did not end in time" if ran.code is None else f"ended with {ran.code}"
    return f"{how}{f' ({words})' if words else ''}"


def toolkit(smi: Ran | None) -> Verdict:
    """Judge the toolkit by nvidia-smi, which it puts into every container that asks for GPUs."""
    if smi is None:
        return Verdict("the container runtime did not put nvidia-smi into this container: see `kubectl logs` of the toolkit pod "
                       "on this node, and whether the runtime class is NVIDIA's")
    return Verdict(files={"toolkit-ready": ""}) if smi.code == 0 else Verdict(f"nvidia-smi {_ended(smi)}")


def module(component: str, modules: frozenset[str]) -> Verdict:
    """Judge a component that is one kernel module."""
    name = MODULES[component]
    if name not in modules:
        return Verdict(f"the kernel module {name} is not loaded: see the driver pod's container for it")
    return Verdict(files={f"{component}-ready": ""})


def mofed(settings: ValidatorSettings, *, present: bool, ready: bool) -> Verdict:
    """Judge Mellanox' driver, where GPUDirect RDMA needs it."""
    if not settings.rdma or not present:
        return Verdict()
    if ready:
        return Verdict(files={"mofed-ready": ""})
    if settings.host_mofed:
        return Verdict("the kernel module mlx5_core is not loaded: install Mellanox' driver on the host")
    return Verdict("/run/mellanox/drivers/.driver-ready is not there: see the pods of the network operator on this node")


def workload_type(settings: ValidatorSettings, label: str | None) -> str:
    """Return what a node is for; a value that is none counts as the default."""
    default = settings.default_workload if settings.default_workload in WORKLOADS else "vm-passthrough"
    return label if label in WORKLOADS else default


def vfio(gpus: Sequence[PciGpu]) -> Verdict:
    """Judge whether all GPUs are bound for virtual machines."""
    if not gpus:
        return Verdict("there is no GPU of NVIDIA's on the PCI bus: see `lspci -d 10de:` and `dmesg` on this node")
    for gpu in gpus:
        if gpu.driver not in VFIO:
            bound = gpu.driver or "no driver"
            return Verdict(f"GPU {gpu.address} is bound to {bound} and not to vfio-pci: see the pod of vfio-manager")
    return Verdict(files={"vfio-pci-ready": ""})


def vgpu_manager(smi: Ran | None, gpus: Sequence[PciGpu], parents: int, *, host: bool) -> Verdict:
    """Judge the vGPU manager: it runs, and its virtual functions or parent devices are there."""
    if smi is None:
        return Verdict("there is no nvidia-smi of a vGPU manager: see the pod of vgpu-manager")
    if smi.code != 0:
        return Verdict(f"nvidia-smi {_ended(smi)}: see the pod of vgpu-manager")
    physical = [gpu for gpu in gpus if gpu.functions is not None]
    if any(gpu.functions for gpu in physical):
        enabled, wanted = sum(gpu.functions or 0 for gpu in physical), sum(gpu.all_functions for gpu in physical)
        if enabled != wanted:
            return Verdict(f"{enabled} of {wanted} virtual functions are enabled: see the pod of vgpu-manager")
    elif not parents:
        return Verdict("there are neither virtual functions nor parent devices of vGPUs: see the pod of vgpu-manager")
    return Verdict(files={"host-vgpu-manager-ready" if host else "vgpu-manager-ready": ""})


def vgpu_devices(count: int) -> Verdict:
    """Judge whether vGPUs were made."""
    if not count:
        return Verdict("there is no vGPU: see the pod of vgpu-device-manager, and the node's label nvidia.com/vgpu.config")
    return Verdict(files={"vgpu-devices-ready": ""})


def cc_manager(*, capable: bool, ready: bool) -> Verdict:
    """Judge the manager of confidential computing, where a node is capable of it."""
    if capable and not ready:
        return Verdict("the manager of confidential computing is not ready: see the pod of cc-manager on this node")
    return Verdict(files={"cc-manager-ready": ""})


def gpu_resource(quantities: Mapping[str, str]) -> str:
    """Return the name of a resource that a node has GPUs by, parts of GPUs first; empty where it has none."""
    for prefix in RESOURCES:
        for name in sorted(quantities):
            if name.startswith(prefix) and count(quantities[name]) > 0:
                return name
    return ""


def count(quantity: str) -> int:
    """Return how many a Kubernetes quantity of whole things is, such as 8 or 1k; 0 for what is none."""
    found = re.fullmatch(r"([0-9]{1,18})(|[kMGTPE]|[KMGTPE]i)", quantity)
    if found is None:
        return 0
    power: int = "-KMGTPE".index(found[2][:1].upper() or "-")
    return int(int(found[1]) * (1024 if found[2].endswith("i") else 1000) ** power)


def device_links(facts: DeviceFacts, root: str) -> dict[str, str]:
    """Return the links /dev/char/MAJOR:MINOR to all devices that this node's GPUs may come to have.

    A runtime with systemd's control groups loses access to devices without them (NVIDIA/gpu-operator issue 430).
    """
    base = root.rstrip("/")
    if not facts.gpus:
        return {}
    front, uvm, caps = (facts.majors.get(name) for name in ("nvidia-frontend", "nvidia-uvm", "nvidia-caps"))
    front = front if front is not None else facts.majors.get("nvidia")
    found: dict[str, str] = {}
    if front is not None:
        found |= {f"{front}:{MODESET_MINOR}": "/dev/nvidia-modeset", f"{front}:{CONTROL_MINOR}": "/dev/nvidiactl"}
        found |= {f"{front}:{number}": f"/dev/nvidia{number}" for number in range(facts.gpus)}
    if uvm is not None:
        found |= {f"{uvm}:0": "/dev/nvidia-uvm", f"{uvm}:1": "/dev/nvidia-uvm-tools"}
    if caps is not None:
        wanted = [minor for name, minor in facts.mig_minors.items() if _is_capability(name, facts.gpus)]
        found |= {f"{caps}:{minor}": f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in wanted}
    return {number: base + path for number, path in found.items()}


def _is_capability(name: str, gpus: int) -> bool:
    gpu = name.partition("/")[0].removeprefix("gpu")
    return name in ("config", "monitor") or ((number := whole(gpu)) is not None and number < gpus)


def control_devices(facts: DeviceFacts) -> dict[str, tuple[int, int]]:
    """Return the devices by which drivers are talked to, with their numbers: they are made where they lack."""
    paths = ("/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    numbers = {path: number for number, path in device_links(facts, "").items() if path in paths}
    return {path: (int(major), int(minor)) for path, (major, _, minor) in ((p, n.partition(":")) for p, n in numbers.items())}
