"""Control groups of nodes: one folder for all of them in each hierarchy, cgroup v1 or v2, whatever the machine mounts.

Everything here works on mounts of its own, so the caller must be in a private mount namespace.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.node import linux

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "name=systemd")
"""Of v1, whether the machine mounts them or not."""
_HANDED_ON = ("cpu", "cpuset", "io", "memory", "pids")
"""Of v2."""
PATIENCE = 20.0
POLL = 0.05


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Stand for one tree of control groups, by how it is mounted."""

    kind: str
    options: str
    names: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Return where it is mounted; v2 has one tree, in the place of all those of v1."""
        return ROOT / ",".join(self.names).removeprefix("name=") if self.names else ROOT


def hierarchies() -> list[Hierarchy]:
    """Return the trees of this machine: v1 where the memory controller is bound to it, v2 otherwise."""
    rows = [line.split() for line in Path("/proc/cgroups").read_text().splitlines()]
    if not any(row[0] == "memory" and row[1] != "0" for row in rows):
        return [Hierarchy("cgroup2", "", ())]
    # Controllers that are mounted together can be mounted in no other way.
    lines = [line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    bound = [tuple(names.split(",")) for _, names, _ in lines if names]
    there = {name for group in bound for name in group}
    known = {row[0] for row in rows} | {"name=systemd"}
    groups = bound + [(name,) for name in CONTROLLERS if name in known - there]
    return [Hierarchy("cgroup", _options(group), group) for group in groups]


def _options(group: tuple[str, ...]) -> str:
    named = any(name.startswith("name=") for name in group)
    return ",".join(("none", *group) if named else group)


def mount(root: Path = Path("/")) -> None:
    """Mount all trees below a root, as this process' cgroup namespace shows them."""
    trees = hierarchies()
    at = root / ROOT.relative_to("/")
    if trees[0].kind == "cgroup":
        linux.mount("tmpfs", at, "tmpfs", options="mode=755")
    for tree in trees:
        target = root / tree.folder.relative_to("/")
        target.mkdir(exist_ok=True)
        linux.mount("cgroup", target, tree.kind, linux.NOSUID | linux.NODEV | linux.NOEXEC, tree.options)
        for name in tree.names if len(tree.names) > 1 else ():
            (at / name).symlink_to(tree.folder.name)


def join(name: str) -> None:
    """Move this process to a group, which is made where it is missing: `name` may be a path."""
    for tree in hierarchies():
        folder = tree.folder
        for part in Path(name).parts:
            if tree.kind == "cgroup2":
                _delegate(folder)
            folder /= part
            folder.mkdir(exist_ok=True)
            _inherit_cpus(folder)
        (folder / "cgroup.procs").write_text(str(os.getpid()))


def make_room(name: str) -> None:
    """Leave a group that this process has joined to groups below it: v2 hands controllers on only while no process is in it."""
    for tree in hierarchies():
        if tree.kind == "cgroup2":
            inner = tree.folder / name / "init"
            inner.mkdir(exist_ok=True)
            (inner / "cgroup.procs").write_text(str(os.getpid()))
            _delegate(tree.folder / name)


def _delegate(folder: Path) -> None:
    for name in set(_HANDED_ON).intersection((folder / "cgroup.controllers").read_text().split()):
        # One that cannot be handed on here is missed by nobody, or the kubelet says so.
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _inherit_cpus(folder: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = folder / name
        # In v1 a new group has none, and takes no process then; in v2 none means those of its parent.
        if file.exists() and not (folder / "cgroup.controllers").exists() and not file.read_text().strip():
            file.write_text((folder.parent / name).read_text())


def processes(name: str) -> set[int]:
    """Return the numbers of all processes in a group and those below it."""
    return {int(pid) for folder in _folders(name) for pid in _read(folder / "cgroup.procs").split()}


def remove(name: str) -> None:
    """Kill what is in a group and those below it, and remove them. Nothing happens where there is none."""
    until = time.monotonic() + PATIENCE
    while left := list(_folders(name)):
        for pid in processes(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for folder in left:
            with suppress(OSError):
                folder.rmdir()
        if time.monotonic() > until:
            raise OSError(f"these control groups cannot be removed: {', '.join(map(str, left))}")
        time.sleep(POLL)


def _folders(name: str) -> Iterator[Path]:
    for tree in hierarchies():
        for path, _, _ in os.walk(tree.folder / name, topdown=False):
            yield Path(path)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
