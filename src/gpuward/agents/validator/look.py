"""What the validator finds on its machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from gpuward.agents.host import Host, Ran, whole
from gpuward.agents.validator.facts import DeviceFacts, DriverFacts, PciGpu, ValidatorSettings

PCI: Final = "/sys/bus/pci/devices"
NVIDIA: Final = "0x10de"
GPU_CLASSES: Final = ("0x0300", "0x0302")
"""How the class of a VGA or 3D controller begins."""
MDEV: Final = "/sys/class/mdev_bus"
MDEV_DEVICES: Final = "/sys/bus/mdev/devices"
WSL_SMI: Final = PurePosixPath("/usr/lib/wsl/lib/nvidia-smi")
PROGRAMS: Final = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib/wsl/lib", "/opt/bin")
IN_CONTAINERS: Final = (*PROGRAMS, "/usr/local/sbin", "/usr/local/bin")
"""Where a program is that the toolkit has put into a container: where the host has it, as far as NVIDIA's image looks by PATH."""
LIBRARIES: Final = ("/", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64",
                    "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu")
CONTAINER_READY: Final = ".driver-ctr-ready"
SMI_SECONDS: Final = 60.0


def program(host: Host, root: str, name: str = "nvidia-smi", folders: Sequence[str] = PROGRAMS) -> str | None:
    """Return where a program is below a root, as a process there would find it."""
    return next((path for folder in folders if (path := host.locate(PurePosixPath(folder, name), root))), None)


def is_wsl(host: Host) -> bool:
    """Tell whether the host is a Linux in Windows, whose driver is that of Windows."""
    return host.locate_file(WSL_SMI, "/host") is not None


def host_smi(host: Host, settings: ValidatorSettings) -> Ran | None:
    """Run the host's nvidia-smi in the host's root."""
    found = program(host, "/host")
    return host.run([found, *smi_arguments(settings)], root="/host", timeout=SMI_SECONDS) if found else None


def smi_arguments(settings: ValidatorSettings) -> list[str]:
    """Return what keeps nvidia-smi from touching GPUs, where that is wished."""
    return ["--version"] if settings.skip_gpu_init else []


def driver_facts(host: Host, settings: ValidatorSettings, *, is_managed: Callable[[], bool]) -> DriverFacts:
    """Look at the driver. Whether the operator brings one is asked only where the host has none that works."""
    if is_wsl(host):
        return DriverFacts(wsl=True)
    on_host = host_smi(host, settings)
    if on_host is not None and on_host.code == 0:
        return DriverFacts(host_smi=on_host)
    managed = is_managed()
    ready = host.read(f"{settings.output}/{CONTAINER_READY}")
    if managed and ready is None:
        return DriverFacts(host_smi=on_host, managed=True)
    root = settings.install_dir_here
    library = next((f"{root}{path}" for folder in LIBRARIES
                    if (path := host.locate_file(PurePosixPath(folder, "libnvidia-ml.so.1"), root))), "")
    smi = program(host, root, folders=("/", *PROGRAMS))
    ran = None
    if smi and library:
        ran = host.run([f"{root}{smi}", *smi_arguments(settings)], env={"LD_PRELOAD": library}, timeout=SMI_SECONDS)
    return DriverFacts(host_smi=on_host, managed=managed, container_ready=ready, smi=ran, library=library,
                       modules=frozenset(host.modules()), device_root=host.is_folder(f"{root}/dev"))


def gpus(host: Host) -> list[PciGpu]:
    """Return NVIDIA's GPUs on the PCI bus, without their virtual functions."""
    found = []
    for address in host.entries(PCI):
        folder = f"{PCI}/{address}"
        if host.read(f"{folder}/vendor") != NVIDIA or not (host.read(f"{folder}/class") or "").startswith(GPU_CLASSES):
            continue
        if host.link(f"{folder}/physfn") is not None:
            continue
        found.append(PciGpu(address, (host.link(f"{folder}/driver") or "").rpartition("/")[2]))
    return found


def gpus_with_functions(host: Host) -> list[PciGpu]:
    """Return NVIDIA's GPUs with their virtual functions. Raises KernelBusyError while a driver takes one, or gives it up."""
    found, totals = gpus(host), {}
    for gpu in found:
        if (total := host.read(f"{PCI}/{gpu.address}/sriov_totalvfs")) is not None:
            totals[gpu.address] = whole(total) or 0
    if not totals:
        return found
    enabled = host.read_held([f"{PCI}/{each}/sriov_numvfs" for each in totals], "how many virtual functions of GPUs are enabled")
    functions = dict(zip(totals, (whole(each) or 0 for each in enabled), strict=True))
    return [replace(gpu, functions=functions.get(gpu.address), all_functions=totals.get(gpu.address, 0)) for gpu in found]


def vgpu_parents(host: Host) -> list[str]:
    """Return the addresses of NVIDIA's among the devices that others can be made of; graphics of other vendors are such, too."""
    return [each for each in host.entries(MDEV) if host.read(f"{MDEV}/{each}/vendor") == NVIDIA]


def vgpus(host: Host) -> int:
    """Return how many devices are made of NVIDIA's: a link leads to each, below the device that it is made of."""
    parents = set(vgpu_parents(host))
    return sum(PurePosixPath(host.link(f"{MDEV_DEVICES}/{each}") or "").parent.name in parents
               for each in host.entries(MDEV_DEVICES))


def device_facts(host: Host) -> DeviceFacts:
    """Return what device numbers are made of."""
    majors, characters = {}, False
    for line in (host.read("/proc/devices") or "").splitlines():
        number, _, name = line.strip().partition(" ")
        if line.endswith(":"):
            characters = line.startswith("Character")
        elif characters and (major := whole(number)) is not None:
            majors[name] = major
    minors = {}
    for line in (host.read("/proc/driver/nvidia-caps/mig-minors") or "").splitlines():
        name, _, number = line.strip().rpartition(" ")
        if (minor := whole(number)) is not None:
            minors[name.removesuffix("/access")] = minor
    return DeviceFacts(len(gpus(host)), majors, minors)
