"""Processes of a machine, and which of them use devices: NVIDIA's, and those that virtual machines are given."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuward.agents.host import DeviceUser, HostError, whole
from gpuward.agents.kernel import PYTHON
from gpuward.agents.looking import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set
    from pathlib import Path

    from gpuward.agents.programs import Programs

DELETED: Final = r"(?: \(deleted\))?"
DEVICE: Final = re.compile(rf"((?:/.*)?/dev/(?:nvidia(?:\d+|ctl|-[\w-]+(?:/[\w-]+)?)|gdrdrv|dri/(card\d+|renderD\d+))){DELETED}")
"""What has another root than ours mounted names a device by a longer path."""
VFIO: Final = re.compile(rf"(?:/.*)?(/dev/vfio/(?:\d+|noiommu-\d+|devices/vfio\d+)){DELETED}")
"""The file of a group, or of one device; `/dev/vfio/vfio` itself holds none."""
POD: Final = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])")
"""A pod's uid in the name of its control group; systemd's have underscores, and a static pod has the hash of its file."""
NVIDIAS: Final = ("nvidia", "gdrdrv")
"""How the names begin by which the kernel lists the numbers of devices of NVIDIA's."""
DRM: Final = 226
"""The major number of graphics devices, whosever they are."""
MAPS_SECONDS: Final = 5.0
AT_ONCE: Final = 500
"""Processes that one look at maps is for: what it finds has to fit into the output that is kept."""
MAPS: Final = """\
import os, re, stat, sys
wanted, numbers, proc = re.compile(sys.argv[1]), set(map(int, sys.argv[2].split())), sys.argv[3]

def may_be_one(pid, place):
    place = "-".join(f"{int(end, 16):x}" for end in place.split("-"))
    try:
        seen = os.stat(f"{proc}/{pid}/map_files/{place}")
    except (OSError, ValueError):
        return True
    return not numbers or (stat.S_ISCHR(seen.st_mode) and os.major(seen.st_rdev) in numbers)

for pid in sys.argv[4:]:
    print(pid, flush=True)
    found = {}
    try:
        with open(f"{proc}/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                if "/dev/" in line and wanted.fullmatch(path := line.rstrip().split(maxsplit=5)[-1]):
                    found[path] = line.partition(" ")[0]
    except OSError:
        continue
    for path in [each for each in sorted(found) if may_be_one(pid, found[each])][:5]:
        print("", path, flush=True)
"""
"""Prints processes, and after each what it has mapped by these names, unless it is known to be no device of these numbers.

A process that the kernel holds while it changes its memory holds who reads its maps, too: another program does.
"""


@dataclass(frozen=True, slots=True)
class Processes:
    """Look at the processes below a folder like /proc, on a machine with a folder like /sys."""

    proc: Path
    sys: Path
    programs: Programs
    unreadable: set[str] = field(default_factory=set)
    """Processes whose maps could not be read in time."""

    def opening(self) -> list[DeviceUser]:
        """Return who has a device of NVIDIA's open, with the first one."""
        nvidias = partial(self._nvidias, self._majors())
        found = ((pid, next(self._opened(pid, nvidias), None)) for pid in _numbers(self.proc))
        return [self._user(pid, device) for pid, device in found if device is not None]

    def opening_vfio(self) -> list[DeviceUser]:
        """Return who has devices of vfio's open, with an entry for each."""
        vfios = partial(_vfios, self._majors("vfio"))
        return [self._user(pid, device) for pid in _numbers(self.proc) for device in dict.fromkeys(self._opened(pid, vfios))]

    def mapping(self) -> list[DeviceUser]:
        """Return who has a device of NVIDIA's mapped. It takes the kernel much longer than to tell who has one open."""
        pids = [pid for pid in _numbers(self.proc) if pid not in self.unreadable]
        return [user for first in range(0, len(pids), AT_ONCE) for user in self._mapping(pids[first:first + AT_ONCE])]

    def _mapping(self, pids: Sequence[str]) -> Iterator[DeviceUser]:
        majors = self._majors()
        numbers = " ".join(str(each) for each in sorted(majors | {DRM} if majors else ()))
        while pids:
            called = [*PYTHON, MAPS, DEVICE.pattern, numbers, str(self.proc), *pids]
            try:
                code, output = self.programs.run(called, os.environ, MAPS_SECONDS, None)
            except OSError as error:
                raise HostError(f"the memory of processes cannot be looked at: {error.strerror or error}") from error
            pid, done = "", set()
            for line in output.decode(errors="replace").splitlines():
                if not line.startswith(" "):
                    pid = line
                elif pid not in done and (device := self._named(line[1:])) is not None:
                    done.add(pid)
                    yield self._user(pid, device)
            if code is not None or pid not in pids:
                return
            self.unreadable.add(pid)
            pids = pids[pids.index(pid) + 1:]

    def _nvidias(self, majors: Set[int], file: str, link: str) -> str | None:
        """Return a device of NVIDIA's: it is known by its number, or by its name where it cannot be looked at."""
        if not link.startswith("/dev/") and DEVICE.fullmatch(link) is None:
            return None
        try:
            mode, major, minor = kind_of(file)
        except OSError:
            return self._named(link)
        if not stat.S_ISCHR(mode):
            return self._named(link) if not majors else None
        if major == DRM:
            return link if self._is_driven(f"dev/char/{major}:{minor}") else None
        if not majors:
            return self._named(link)
        return link.removesuffix(" (deleted)") if major in majors else None

    def _named(self, link: str) -> str | None:
        found = DEVICE.fullmatch(link)
        return found[1] if found is not None and (not found[2] or self._is_driven(f"class/drm/{found[2]}")) else None

    def _is_driven(self, device: str) -> bool:
        try:
            return os.readlink(self.sys / device / "device/driver").rpartition("/")[2].startswith("nvidia")
        except OSError:
            return False

    def _majors(self, *drivers: str) -> set[int]:
        """Return the numbers of the devices of some drivers, by how their names begin: without them of NVIDIA's."""
        characters = _text(self.proc / "devices").partition("Block devices:")[0]
        lines = (line.split() for line in characters.splitlines())
        return {major for words in lines if len(words) == 2 and words[1].startswith(drivers or NVIDIAS)
                and (major := whole(words[0])) is not None}

    def _opened(self, pid: str, device: Callable[[str, str], str | None]) -> Iterator[str]:
        for file in _files(self.proc / pid):
            with contextlib.suppress(OSError):
                if (found := device(file, os.readlink(file))) is not None:
                    yield found

    def _user(self, pid: str, device: str) -> DeviceUser:
        group = POD.search(_text(self.proc / pid / "cgroup"))
        uid = group[1].replace("_", "-") if group else ""
        return DeviceUser(int(pid), _text(self.proc / pid / "comm").strip(), device, uid)


def _files(process: Path) -> Iterator[str]:
    """Yield what a process has open, one after the other: there may be a million.

    One whose first thread has ended seems to have nothing open, as those of the kernel have: its other threads are asked then.
    """
    nothing = True
    with contextlib.suppress(OSError), os.scandir(process / "fd") as files:
        for file in files:
            nothing = False
            yield file.path
    for thread in _numbers(process / "task") if nothing else ():
        if thread != process.name:
            yield from _files(process / "task" / thread)


def _vfios(majors: Set[int], file: str, link: str) -> str | None:
    """Return a device of vfio's. Where the kernel tells their numbers a file that only has such a name holds nothing."""
    found = VFIO.fullmatch(link)
    if found is None:
        return None
    try:
        mode, major, _ = kind_of(file)
    except OSError:
        return found[1]
    return found[1] if not majors or (stat.S_ISCHR(mode) and major in majors) else None


def _numbers(folder: Path) -> list[str]:
    try:
        return sorted((name for name in os.listdir(folder) if whole(name) is not None), key=int)
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
