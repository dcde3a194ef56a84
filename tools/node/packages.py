"""What a node needs of this machine: its user, its kernel and Debian's packages."""

from __future__ import annotations

import os
import shutil
import sys

from tools.node import linux
from tools.node.files import cni_bin

_PROGRAMS = {
    "containerd": "containerd", "ctr": "containerd", "containerd-shim-runc-v2": "containerd", "runc": "runc", "ip": "iproute2",
    "nsenter": "util-linux",
}
"""From a program to Debian's package."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def forbidden() -> str:
    """Say in one line why no package would help nodes to run here; empty where they may."""
    if sys.platform != "linux":
        return "nodes run on Linux only"
    if os.geteuid() != 0:
        return "nodes need root: they mount and make namespaces"
    if not _may_make_namespaces():
        return "nodes need a root that may mount and make namespaces, as in a privileged container"
    return ""


def missing(*further: str) -> str:
    """Say in one line what keeps nodes, and further programs, from running here; empty where nothing does."""
    if why := forbidden():
        return why
    wanted = _PROGRAMS | {program: program for program in further}
    packages = {package for program, package in wanted.items() if shutil.which(program, path=_PATH) is None}
    if cni_bin() is None:
        packages.add("containernetworking-plugins")
    if packages:
        names = " ".join(sorted(packages))
        return f"packages are missing; with Debian: apt-get install -y --no-install-recommends {names}"
    return ""


def _may_make_namespaces() -> bool:
    if (child := os.fork()) == 0:
        try:
            linux.make_private()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0
