"""System calls that Python 3.11 does not offer: namespaces and mounts."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE, SHARED = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18, 1 << 20
_DETACH = 2
_SET_PDEATHSIG = 1
_OVERLAY = 0x794C7630

# Looked up now: within a node's file system there may be no library to load.
_libc = ctypes.CDLL(None, use_errno=True)
_mount, _umount, _pivot_root = _libc.mount, _libc.umount2, _libc.pivot_root
_unshare, _setns, _prctl, _statfs = _libc.unshare, _libc.setns, _libc.prctl, _libc.statfs
for _function in (_mount, _umount, _pivot_root, _unshare, _setns, _prctl, _statfs):
    _function.restype = ctypes.c_int
_mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


def unshare(flags: int) -> None:
    """Move this process, or its children in the case of NEWPID, to new namespaces."""
    _check(_unshare(flags), "unshare")


def enter(namespace: int) -> None:
    """Move this thread to the namespace behind a file descriptor."""
    _check(_setns(namespace, 0), "setns")


def mount(source: str, target: Path | str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or change how one is mounted."""
    done = _mount(source.encode(), os.fsencode(target), kind.encode(), flags, options.encode())
    _check(done, f"mount {kind or source} on {target}")


def bind(source: Path | str, target: Path) -> None:
    """Let a file or folder, with what is mounted below it, be seen at a second place."""
    mount(str(source), target, flags=BIND | REC)


def make_private() -> None:
    """Move this process to a mount namespace of its own, from which nothing spreads."""
    unshare(NEWNS)
    mount("none", "/", flags=REC | PRIVATE)


def change_root(root: Path) -> None:
    """Make a mount point the root of this mount namespace, and let go of the old root."""
    os.chdir(root)
    # With both the same, the old root lies on top of the new one: pivot_root(2).
    _check(_pivot_root(b".", b"."), "pivot_root")
    _check(_umount(b".", _DETACH), "umount")
    os.chdir("/")


def is_overlay(path: Path) -> bool:
    """Tell whether a folder is on an overlay file system, on which no other can keep its changes."""
    answer = ctypes.create_string_buffer(512)
    _check(_statfs(os.fsencode(path), answer), f"statfs {path}")
    return int.from_bytes(answer.raw[:ctypes.sizeof(ctypes.c_long)], sys.byteorder) == _OVERLAY


def die_with_parent() -> None:
    """Have this process killed when the one that started it ends."""
    _check(_prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
