"""The file system of a node: this machine's /usr and /etc with changes kept apart, and everything else its own."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from tools.node import cgroups, linux

OWN = Path("/opt/gpuward-node")
"""Where the node finds what was prepared for it; a plain folder below its root beforehand."""
_COPIED = ("usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = ("proc", "sys", "dev", "run", "tmp", "root", "home", "mnt", "srv", "media", "boot",
            "var/lib/kubelet", "var/lib/containerd", "var/log", "var/tmp")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse", "net/tun")
_LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
          "stderr": "/proc/self/fd/2"}
_TUNABLES = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
             "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}
"""What a kubelet sets, for the whole machine: it is shown that all is set already."""


def root_of(folder: Path) -> Path:
    """Return where a node's root lies, as this machine sees it, in the folder of the node's state."""
    return folder / "root"


def build(folder: Path, binds: dict[Path, Path]) -> None:
    """Put a node's file system together and make it the root; `binds` are further files, from their place in it to their source.

    The caller is the first process of the node, in all its namespaces.
    """
    root = root_of(folder)
    linux.bind(root, root)
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    _keep_changes(root, folder / "changes")
    for name in _COPIED:
        _copy(Path("/") / name, root / name, folder / "changes" / name)
    _identify(root, folder.name)
    linux.mount("proc", root / "proc", "proc", linux.NOSUID | linux.NODEV | linux.NOEXEC)
    linux.mount("sysfs", root / "sys", "sysfs", linux.NOSUID | linux.NODEV | linux.NOEXEC)
    cgroups.mount(root)
    linux.mount("tmpfs", root / "run", "tmpfs", linux.NOSUID | linux.NODEV, "mode=755")
    _pretend_tunables(root, folder / "tunables")
    _devices(root / "dev")
    for target, source in binds.items():
        at = root / target.relative_to("/")
        at.touch()
        linux.bind(source, at)
    linux.change_root(root)
    # Mounts that a container makes reach the others, as on a machine that systemd has started.
    linux.mount("none", "/", flags=linux.REC | linux.SHARED)


def _keep_changes(root: Path, changes: Path) -> None:
    changes.mkdir(exist_ok=True)
    for each in (changes, root / "var" / "lib" / "containerd"):
        # Overlays do not stack: in most containers there is no place for changes but memory.
        if linux.is_overlay(each):
            linux.mount("tmpfs", each, "tmpfs")


def _copy(source: Path, target: Path, changes: Path) -> None:
    if source.is_symlink():
        if not target.is_symlink():
            target.symlink_to(source.readlink())
    elif source.is_dir():
        for each in (target, changes / "upper", changes / "work"):
            each.mkdir(parents=True, exist_ok=True)
        linux.mount("overlay", target, "overlay",
                    options=f"lowerdir={source},upperdir={changes / 'upper'},workdir={changes / 'work'}")


def _identify(root: Path, name: str) -> None:
    (root / "etc" / "hostname").write_text(f"{name}\n")
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost {name}\n")
    # Two nodes with one identity would be one machine to whoever counts machines.
    (root / "etc" / "machine-id").write_text(f"{hashlib.sha256(str(root).encode()).hexdigest()[:32]}\n")
    for link, target in {"run": "/run", "lock": "/run/lock"}.items():
        (root / "var" / link).symlink_to(target)


def _pretend_tunables(root: Path, folder: Path) -> None:
    for name, value in _TUNABLES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        linux.bind(file, root / "proc" / "sys" / name)


def _devices(dev: Path) -> None:
    linux.mount("tmpfs", dev, "tmpfs", linux.NOSUID, "mode=755")
    for name in _DEVICES:
        if (original := Path("/dev") / name).exists():
            (dev / name).parent.mkdir(exist_ok=True)
            found = original.stat()
            os.mknod(dev / name, stat.S_IFMT(found.st_mode) | 0o666, found.st_rdev)
            (dev / name).chmod(stat.S_IMODE(found.st_mode))
    for name, to in _LINKS.items():
        (dev / name).symlink_to(to)
    for name in ("pts", "shm", "mqueue"):
        (dev / name).mkdir()
    linux.mount("devpts", dev / "pts", "devpts", linux.NOSUID | linux.NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    linux.mount("tmpfs", dev / "shm", "tmpfs", linux.NOSUID | linux.NODEV)
    linux.mount("mqueue", dev / "mqueue", "mqueue", linux.NOSUID | linux.NODEV | linux.NOEXEC)
