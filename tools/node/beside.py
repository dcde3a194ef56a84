"""Run a program in the network of the router and in the control group of all nodes, so that `down` finds it.

Usage: python -m tools.node.beside ROUTER_PID GROUP PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import sys

from tools.node import cgroups, linux


def main() -> None:
    """Become the program."""
    router, group, *line = sys.argv[1:]
    linux.make_private()
    cgroups.mount()
    cgroups.join(group)
    with open(f"/proc/{router}/ns/net") as network:
        linux.enter(network.fileno())
    os.execvp(line[0], line)


if __name__ == "__main__":
    main()
