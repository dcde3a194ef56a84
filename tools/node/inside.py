"""A node's first process: it makes the namespaces and the file system, and keeps containerd and the kubelet running.

Usage: python -m tools.node.inside NUMBER FOLDER ROUTER_PID GROUP PLACE=SOURCE...

Each PLACE is a file of the node that is in truth SOURCE on this machine.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tools.node import cgroups, files, linux, network, root
from tools.node.root import OWN

LOGS = Path("/var/log")
PAUSE = OWN / "pause.tar"
KUBELET = OWN / "kubelet"
_CONTAINERD = Path("/etc/containerd/config.toml")
"""Where containerd looks, and where a container toolkit changes it."""
_PATIENCE = 60.0
_POLL = 0.05
_REST = 1.0
"""Seconds before a program that has ended is started again."""
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def kubelet_line(node: network.Address) -> list[str]:
    """Return the kubelet's command line."""
    return [str(KUBELET), f"--config={OWN / 'kubelet.json'}", f"--kubeconfig={OWN / 'kubeconfig'}",
            f"--hostname-override={node.name}", f"--node-ip={node.ip}", "--v=2"]


@dataclass
class Supervisor:
    """Keep programs running and take leave of every process that has lost its parent: the first process of a namespace must."""

    lines: dict[int, list[str]] = field(default_factory=dict)

    def start(self, line: list[str]) -> None:
        """Start a program, with its output in a log of its name."""
        log = os.open(LOGS / f"{Path(line[0]).name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open("/dev/null", os.O_RDONLY)
        actions = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        self.lines[os.posix_spawnp(line[0], line, _ENVIRONMENT, file_actions=actions)] = line
        os.close(log)
        os.close(nothing)

    def run(self) -> None:
        """Go on for ever."""
        while True:
            pid, _ = os.wait()
            if line := self.lines.pop(pid, None):
                time.sleep(_REST)
                self.start(line)


def main() -> None:
    """Make a node's namespaces, and wait for the first process in them."""
    number, folder, router, group, *binds = sys.argv[1:]
    node = network.Address(int(number))
    linux.make_private()
    cgroups.mount()
    cgroups.join(name := f"{group}/{node.name}")
    linux.unshare(linux.NEWCGROUP | linux.NEWUTS | linux.NEWIPC | linux.NEWNET)
    cgroups.make_room(name)
    network.connect(node, os.getpid(), int(router))
    # From here on a child is the first process of the node: there may be no other before it.
    linux.unshare(linux.NEWPID)
    if (child := os.fork()) == 0:
        linux.die_with_parent()
        _first(node, Path(folder), binds)
    _wait(child)


def _wait(child: int) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    os.waitpid(child, 0)


def _first(node: network.Address, folder: Path, binds: list[str]) -> None:
    socket.sethostname(node.name)
    root.build(folder, {Path(place): Path(source) for place, _, source in (each.partition("=") for each in binds)})
    supervisor = Supervisor()
    _CONTAINERD.parent.mkdir(exist_ok=True)
    _CONTAINERD.write_bytes((OWN / "containerd.toml").read_bytes())
    supervisor.start(["containerd"])
    _import(supervisor)
    supervisor.start(kubelet_line(node))
    supervisor.run()


def _import(supervisor: Supervisor) -> None:
    """Give containerd the image that keeps a pod's namespaces, as soon as it answers: the kubelet needs it for every pod."""
    until = time.monotonic() + _PATIENCE
    line = [*files.CTR, "--namespace", files.KUBERNETES, "images", "import", str(PAUSE)]
    while os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(line[0], line, _ENVIRONMENT), 0)[1]):
        if time.monotonic() > until:
            raise TimeoutError(f"containerd does not answer; its log is below {LOGS} of the node")
        time.sleep(_POLL)


if __name__ == "__main__":
    main()
