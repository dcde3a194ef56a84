"""Devices of NVIDIA's that a driver for virtual machines has, and who uses them there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuward.agents.host import DeviceUser, Host

PCI: Final = "/sys/bus/pci/devices"
NVIDIA: Final = "0x10de"
DISPLAY, SWITCH = "0x03", "0x0680"
"""How the classes of GPUs and of NVSwitches begin."""


def bound_to_vfio(host: Host, *, switches: bool = False) -> tuple[str, ...]:
    """Return the addresses of GPUs, and of their further functions such as sound, that a driver for virtual machines has.

    NVSwitches count where that is wished only: a machine that nobody else knows of may run the fabric of all GPUs by them.
    """
    classes = {each: host.read(f"{PCI}/{each}/class") or "" for each in host.entries(PCI)
               if host.read(f"{PCI}/{each}/vendor") == NVIDIA}
    gpus = {_device(each) for each, kind in classes.items() if kind.startswith(DISPLAY)}
    return tuple(each for each, kind in classes.items()
                 if (_device(each) in gpus or (switches and kind.startswith(SWITCH)))
                 and "vfio" in (host.link(f"{PCI}/{each}/driver") or "").rpartition("/")[2])


def users_of_vfio(host: Host, devices: Iterable[str]) -> tuple[DeviceUser, ...]:
    """Return who has one of these devices open, by its group or by itself."""
    files: set[str] = set()
    for device in devices:
        group = (host.link(f"{PCI}/{device}/iommu_group") or "").rpartition("/")[2]
        files |= {f"/dev/vfio/{group}", f"/dev/vfio/noiommu-{group}"} if group else set()
        files |= {f"/dev/vfio/devices/{each}" for each in host.entries(f"{PCI}/{device}/vfio-dev")}
    return tuple(user for user in host.vfio_users() if user.device in files) if files else ()


def _device(address: str) -> str:
    """Return a function's address without its number: the device that it is one of."""
    return address.rpartition(".")[0]
