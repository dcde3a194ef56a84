"""What an agent asks of the machine that it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpuward.errors import GpuwardError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set
    from pathlib import PurePosixPath


class ModuleInUseError(GpuwardError):
    """Say that a kernel module cannot be unloaded, as something uses it."""


class HostError(GpuwardError):
    """Say in one line what the machine did not let an agent do."""


class KernelBusyError(GpuwardError):
    """Say what the kernel has begun and not done yet. Nobody can break that off; the same call waits on for it."""


def whole(text: str | None) -> int | None:
    """Return the whole number that a file of the kernel says; None for what is none, or has more digits than any has there."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 20 else None


@dataclass(frozen=True, slots=True)
class Ran:
    """Hold how a program ended."""

    code: int | None
    """None where its time was up before."""
    output: str
    """What it printed, on both streams."""


@dataclass(frozen=True, slots=True)
class DeviceUser:
    """Name a process that has a device file open, or its memory mapped: one of NVIDIA's, or one of vfio's."""

    pid: int
    command: str
    device: str
    pod_uid: str = ""
    """Empty for a process of the host; of a static pod the hash of its file."""
    pod: str = ""
    """The pod's namespace and name, where they are known."""


class Host(Protocol):
    """Reach the files, kernel modules, mounts and processes of a machine. Paths are those of the machine, from its root."""

    def exists(self, path: str) -> bool:
        """Tell whether something is at a path."""
        ...

    def read(self, path: str) -> str | None:
        """Return a file's text without spaces around it, None where there is none or it cannot be read."""
        ...

    def entries(self, path: str) -> Sequence[str]:
        """Return the names in a folder in order, none where there is no such folder."""
        ...

    def link(self, path: str) -> str | None:
        """Return where a symbolic link leads, None for what is none."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file so that nobody sees a part of it; its folder is made where it lacks. Raises HostError."""
        ...

    def poke(self, path: str, text: str) -> None:
        """Write to a file of the kernel. Raises KernelBusyError, HostError."""
        ...

    def read_held(self, paths: Sequence[str], what: str) -> Sequence[str]:
        """Return what files of the kernel say, nothing for one that cannot be read. They are of those that it reads only when a
        driver lets go of their device. Raises KernelBusyError, which says what it has not told; HostError.
        """
        ...

    def symlink(self, path: str, target: str) -> None:
        """Make a symbolic link, in place of whatever is there. Raises HostError."""
        ...

    def make_device(self, path: str, major: int, minor: int) -> None:
        """Make a character device that everybody may use, unless there is something. Raises HostError."""
        ...

    def remove(self, path: str) -> bool:
        """Remove a file, or an empty folder; return whether there was one. Raises HostError."""
        ...

    def modules(self) -> Mapping[str, int]:
        """Return the kernel modules that are loaded, with how many use each."""
        ...

    def unload(self, module: str) -> None:
        """Unload a kernel module. Raises ModuleInUseError, KernelBusyError, HostError."""
        ...

    def mounts_below(self, path: str) -> Sequence[str]:
        """Return the mount points at and below a path, the deepest first."""
        ...

    def unmount(self, path: str) -> None:
        """Detach a mount point. Raises KernelBusyError, HostError."""
        ...

    def device_users(self, beside: Set[str] = frozenset()) -> Sequence[DeviceUser]:
        """Return the processes that have a device of NVIDIA's open. Where there are none, beside those of some pods by their
        uids, those that have one mapped, too.

        Processes of other containers are seen in the host's pid namespace only.
        """
        ...

    def vfio_users(self) -> Sequence[DeviceUser]:
        """Return the processes, one entry for each device file, that have a device of vfio's open: those of virtual machines."""
        ...

    def run(self, command: Sequence[str], *, root: str = "", env: Mapping[str, str] | None = None, timeout: float = 30.0) -> Ran:
        """Run a program, below another root where one is named. Raises HostError where it cannot be started."""
        ...

    def locate(self, path: PurePosixPath, root: str = "") -> str | None:
        """Return the path, from a root, of an executable file that is not empty, links followed below that root; else None.

        Raises KernelBusyError where a file system does not answer; HostError.
        """
        ...

    def locate_file(self, path: PurePosixPath, root: str = "") -> str | None:
        """Return the path, from a root, of a file that is not empty, links followed below that root; else None.

        Raises KernelBusyError where a file system does not answer; HostError.
        """
        ...

    def is_folder(self, path: str) -> bool:
        """Tell whether a folder is at a path."""
        ...
