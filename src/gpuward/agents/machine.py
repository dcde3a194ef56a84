"""The machine itself as an agent's host: files below a root, the kernel's modules, mounts and processes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from gpuward.agents import paths
from gpuward.agents.host import DeviceUser, HostError, KernelBusyError, ModuleInUseError, Ran, whole
from gpuward.agents.kernel import DELETE, DELETE_MODULE, MNT_DETACH, POKE, PYTHON, READ, UNMOUNT
from gpuward.agents.processes import Processes
from gpuward.agents.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

MAY_BE_AWAY: Final = re.compile(
    r"autofs|fuse.*|nfs4?|cifs|smb3?|ceph|afs|9p|lustre|gpfs|beegfs.*|pvfs2|orangefs|wekafs|virtiofs")
"""File systems of servers, and of programs."""
LONGEST_FILE: Final = 1 << 20
"""Bytes of a file that are read."""
UNUSABLE: Final = (errno.ENOENT, errno.ENOEXEC, errno.EACCES)
"""What the kernel says of a file that is no program, or whose interpreter is not there."""
KERNEL_SECONDS: Final = 5.0
"""How long one look waits for the kernel to do what it was asked for. A wedged GPU keeps it from ever doing so."""
NOT_RUN: Final = 127
"""The code with which a shell ends where a program cannot be run."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Reach a machine whose root is a folder here. `sys` and `proc` are folders of their own, as containers have them."""

    root: Path = Path("/")
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    module_tool: str = ""
    """A program that unloads modules in place of the kernel, called with `unload NAME`; it ends with 11 where one is in use."""
    _programs: Programs = field(default_factory=Programs, init=False, compare=False, repr=False)
    _unreadable: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    """Processes that it would hold one up to look into."""

    def exists(self, path: str) -> bool:
        """Tell whether something is at a path."""
        return os.path.lexists(self._at(path))

    def read(self, path: str) -> str | None:
        """Return a file's text without spaces around it. Of what is endless its beginning comes, and of a pipe what is in it."""
        try:
            with open(self._at(path), "rb", opener=_without_waiting) as file:
                return (file.read(LONGEST_FILE) or b"").decode(errors="replace").strip()
        except OSError:
            return None

    def entries(self, path: str) -> Sequence[str]:
        """Return the names in a folder in order."""
        try:
            return sorted(os.listdir(self._at(path)))
        except OSError:
            return ()

    def link(self, path: str) -> str | None:
        """Return where a symbolic link leads."""
        try:
            return os.readlink(self._at(path))
        except OSError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a file whole: beside its place first."""
        place = self._at(path)
        with _refusals(f"cannot write {path}"):
            place.parent.mkdir(parents=True, exist_ok=True)
            number, beside = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
            try:
                with open(number, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(beside, 0o644)
                os.replace(beside, place)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(beside)
                raise

    def poke(self, path: str, text: str) -> None:
        """Write to a file of the kernel, which takes what it is given at once, or when others let go of a device."""
        number, _ = self._ask_kernel([*PYTHON, POKE, str(self._at(path)), text], f"taken {text.strip()!r} in {path}")
        if number:
            raise HostError(f"cannot write {text!r} to {path}: {os.strerror(number)}")

    def read_held(self, paths: Sequence[str], what: str) -> Sequence[str]:
        """Return what files of the kernel say that it may keep to itself for a while."""
        _, said = self._ask_kernel([*PYTHON, READ, *(str(self._at(each)) for each in paths)], f"told {what}")
        lines = [line.removeprefix("=") for line in said.splitlines()]
        if len(lines) != len(paths):
            raise HostError(f"the kernel could not be asked {what}: {said}")
        return lines

    def symlink(self, path: str, target: str) -> None:
        """Make a symbolic link, in place of whatever is there."""
        place = self._at(path)
        if self.link(path) == target:
            return
        with _refusals(f"cannot make the link {path}"):
            place.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                place.symlink_to(target)
                return
            # Another container of the node may do the same now, and its process may have the same number.
            beside = place.with_name(f".{place.name}.{os.urandom(8).hex()}")
            beside.symlink_to(target)
            try:
                os.replace(beside, place)
            except OSError:
                beside.unlink(missing_ok=True)
                raise

    def make_device(self, path: str, major: int, minor: int) -> None:
        """Make a character device."""
        place = self._at(path)
        with _refusals(f"cannot make the device {path}"):
            try:
                os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            except FileExistsError:  # it was there, or another container was faster
                return
            place.chmod(0o666)

    def remove(self, path: str) -> bool:
        """Remove a file, or a folder that is empty, as Go does; return whether there was one."""
        place = self._at(path)
        try:
            with _refusals(f"cannot remove {path}"):
                if place.is_dir() and not place.is_symlink():
                    place.rmdir()
                else:
                    place.unlink()
        except HostError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return False
            raise
        return True

    def modules(self) -> Mapping[str, int]:
        """Return the kernel modules that are loaded: those built in have no state.

        A kernel that cannot unload modules (no CONFIG_MODULE_UNLOAD) does not count who uses them.
        """
        found = {}
        for name in self.entries("/sys/module"):
            count = self.read(f"/sys/module/{name}/refcnt")
            if count is not None or self.exists(f"/sys/module/{name}/initstate"):
                found[name] = whole(count) or 0
        return found

    def unload(self, module: str) -> None:
        """Unload a kernel module, as rmmod does."""
        by_kernel = [*PYTHON, DELETE, str(DELETE_MODULE[os.uname().machine]), module]
        number, said = self._ask_kernel([self.module_tool, "unload", module] if self.module_tool else by_kernel,
                                        f"unloaded the module {module}")
        if number in (errno.EWOULDBLOCK, errno.EBUSY):
            if self.read(f"/sys/module/{module}/initstate") == "going":  # somebody before us has asked for it
                raise KernelBusyError(f"the kernel has not unloaded the module {module} yet, as another process asked it to")
            raise ModuleInUseError(f"the module {module} is in use")
        if self.module_tool and number:
            raise HostError(f"the module {module} cannot be unloaded: {said or f'{self.module_tool} ended with {number}'}")
        if number == errno.ENOSYS:
            raise HostError(f"the module {module} cannot be unloaded: this kernel is built without CONFIG_MODULE_UNLOAD; "
                            "restart the node without the driver")
        if number not in (0, errno.ENOENT):
            raise HostError(f"the module {module} cannot be unloaded: {os.strerror(number)}")

    def _ask_kernel(self, called: Sequence[str], done: str) -> tuple[int, str]:
        try:
            code, said, pid = self._programs.join(called, os.environ, KERNEL_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise HostError(f"the kernel could not be asked: {called[0]} cannot be run: {why}") from error
        if code is None:
            raise KernelBusyError(f"the kernel has not {done} yet (process {pid})")
        words = said.decode(errors="replace").strip()
        if code < 0:  # such as by the kernel, where memory is short
            raise HostError(f"the kernel could not be asked: {called[0]} was ended by signal {-code}")
        if code and words and called[0] == PYTHON[0]:  # else it is the number of the system's error, and nothing is said
            raise HostError(f"the kernel could not be asked: {words.splitlines()[-1]}")
        return code, words

    def mounts_below(self, path: str) -> Sequence[str]:
        """Return the mount points at and below a path, the deepest first."""
        place = str(self._at(path))
        found = [point for point, _ in self._mounts() if point == place or point.startswith(place.rstrip("/") + "/")]
        return [each if self.root == Path("/") else "/" + str(Path(each).relative_to(self.root)) for each in reversed(found)]

    def _mounts(self) -> Iterator[tuple[str, str]]:
        """Yield mount points with the kinds of their file systems."""
        told = self.proc / "self/mountinfo"
        with contextlib.suppress(OSError), open(told, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                columns, _, source = line.partition(" - ")
                words = columns.split(" ")
                if len(words) >= 5:
                    point = words[4]
                    if "\\" in point:  # there may be thousands, and few have such characters
                        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
                    yield point, source.partition(" ")[0]

    def unmount(self, path: str) -> None:
        """Detach a mount point: what has it open keeps it until it closes it."""
        number, _ = self._ask_kernel([*PYTHON, UNMOUNT, str(self._at(path)), str(MNT_DETACH)], f"detached the mount {path}")
        if number not in (0, errno.EINVAL, errno.ENOENT):
            raise HostError(f"cannot unmount {path}: {os.strerror(number)}")

    def device_users(self, beside: Set[str] = frozenset()) -> Sequence[DeviceUser]:
        """Return the processes that have a device file of NVIDIA's open; where nobody else has, one mapped, too."""
        processes = Processes(self.proc, self.sys, self._programs, self._unreadable)
        opening = processes.opening()
        if any(user.pod_uid not in beside for user in opening):
            return opening
        known = {user.pid for user in opening}
        return [*opening, *(user for user in processes.mapping() if user.pid not in known)]

    def vfio_users(self) -> Sequence[DeviceUser]:
        """Return the processes that have a group or a device of vfio's open."""
        return Processes(self.proc, self.sys, self._programs).opening_vfio()

    def run(self, command: Sequence[str], *, root: str = "", env: Mapping[str, str] | None = None, timeout: float = 30.0) -> Ran:
        """Run a program. What it leaves behind when its time is up is killed with it."""
        below = str(self._at(root)) if root else ""
        program = self._at(command[0]) if not root and command[0].startswith("/") else None
        called = [str(program) if program is not None and program.exists() else command[0], *command[1:]]

        def enter() -> None:
            os.chroot(below)
            os.chdir("/")

        try:
            code, output = self._programs.run(
                called, {**os.environ, **(env or {})}, timeout, enter if below not in ("", "/") else None)
        except (OSError, subprocess.SubprocessError) as error:
            if isinstance(error, OSError) and error.errno in UNUSABLE:
                return Ran(NOT_RUN, f"{command[0]} cannot be run: {os.strerror(error.errno)}")
            raise HostError(f"cannot run {command[0]}{f' in {root}' if root else ''}: {error}") from error
        return Ran(code, output.decode(errors="replace").strip())

    def locate(self, path: PurePosixPath, root: str = "") -> str | None:
        """Return the path, from a root, of an executable file that is not empty."""
        found = self._located(path, root)
        return found[0] if found is not None and found[1] else None

    def locate_file(self, path: PurePosixPath, root: str = "") -> str | None:
        """Return the path, from a root, of a file that is not empty."""
        found = self._located(path, root)
        return found[0] if found is not None else None

    def _located(self, path: PurePosixPath, root: str) -> tuple[str, bool] | None:
        base = self._at(root) if root else self.root
        try:
            return paths.located(base, path, frozenset(point for point, kind in self._mounts() if MAY_BE_AWAY.fullmatch(kind)))
        except OSError:
            asked = [*PYTHON[:-1], paths.__file__, str(base), str(path)]
            _, said = self._ask_kernel(asked, f"told whether {root}{path} is there")
            return (said[1:], said.startswith("x")) if said else None

    def is_folder(self, path: str) -> bool:
        """Tell whether a folder is at a path."""
        return os.path.isdir(self._at(path))

    def _at(self, path: str) -> Path:
        if path == "/sys" or path.startswith("/sys/"):
            return self.sys / path[5:]
        if path == "/proc" or path.startswith("/proc/"):
            return self.proc / path[6:]
        return self.root / path.lstrip("/")


@contextlib.contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(f"{what}: {error.strerror or error}") from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
