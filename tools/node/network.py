"""Addresses of nodes, and how their network is made.

The nodes' network is a namespace of its own, the router's: a bridge to which every node has a cable (veth). This machine's own
network has no part in it, no interface, no address and no route: the router passes on what must cross.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

BRIDGE = "nodes"
SERVICE = "10.96.0.1"
"""Where pods look for the API server: the first address of its service range."""
ROUTER = "10.89.0.1"
MOST_NODES = 8


@dataclass(frozen=True, slots=True)
class Address:
    """Hold what the network knows of a node, by its number from 1."""

    number: int

    @property
    def name(self) -> str:
        """Return the node's name."""
        return f"node-{self.number}"

    @property
    def ip(self) -> str:
        """Return the node's address."""
        return f"10.89.0.{self.number + 1}"

    @property
    def pods(self) -> str:
        """Return the range of the addresses of its pods."""
        return f"10.88.{self.number}.0/24"


def addresses(count: int) -> list[Address]:
    """Return the addresses of so many nodes."""
    return [Address(number) for number in range(1, count + 1)]


def make_router() -> None:
    """Furnish the present network namespace, a new one, as that of the router."""
    _ip("link set lo up")
    _ip(f"address add {SERVICE}/32 dev lo")
    _ip(f"link add {BRIDGE} type bridge")
    _ip(f"address add {ROUTER}/24 dev {BRIDGE}")
    _ip(f"link set {BRIDGE} up")
    _forward()


def connect(node: Address, pid: int, router: int) -> None:
    """Furnish the present network namespace, that of a process, as that of a node, with a cable to the router's.

    Both are given as process numbers.
    """
    _ip("link set lo up")
    _ip(f"link add {node.name} type veth peer name eth0 netns {pid}", router)
    _ip(f"link set {node.name} master {BRIDGE} up", router)
    _ip(f"route replace {node.pods} via {node.ip} dev {BRIDGE} onlink", router)
    _ip(f"address add {node.ip}/24 dev eth0")
    _ip("link set eth0 up")
    _ip(f"route add default via {ROUTER}")
    _forward()


def _ip(words: str, namespace_of: int | None = None) -> None:
    elsewhere = [] if namespace_of is None else ["nsenter", f"--net=/proc/{namespace_of}/ns/net"]
    done = subprocess.run([*elsewhere, "ip", *words.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {words}: {done.stderr.strip()}")


def _forward() -> None:
    # The file belongs to the network namespace of whoever opens it.
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
