"""What `--fault` means: which faults come to which nodes of the sandbox's fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from gpuward.sandbox.fleet import fleet
from gpuward.sandbox.known_faults import EVERYWHERE, meant, unknown_fault

ALL = "all"


def placed(options: Sequence[str], gpu_nodes: int) -> Mapping[str, tuple[str, ...]]:
    """Return the faults of each node that has some.

    Raises:
        BadParameter: there is no such fault, or no such node.
    """
    nodes = [node["metadata"]["name"] for node in fleet(gpu_nodes, 1)]
    found: dict[str, dict[str, None]] = {}
    for option in options:
        fault, given, where = (part.strip() for part in option.partition("="))
        if why := unknown_fault(fault):
            raise _refused(why)
        for node in _named(where, nodes, gpu_nodes) if given else _by_default(fault, nodes[:gpu_nodes]):
            found.setdefault(node, {})[fault] = None
    return {node: tuple(faults) for node, faults in found.items()}


def _named(where: str, nodes: Sequence[str], gpu_nodes: int) -> Sequence[str]:
    if where == ALL:
        return nodes[:gpu_nodes]
    names = [part.strip() for part in where.split(",")]
    for name in names:
        if name not in nodes:
            raise _refused(f"there is no node {name!r}; {meant(name, nodes)}")
    return names


def _by_default(fault: str, gpu_nodes: Sequence[str]) -> Sequence[str]:
    if not gpu_nodes:
        raise _refused(f"there is no GPU node for {fault}: let --nodes be 1 or more")
    return gpu_nodes if fault in EVERYWHERE else gpu_nodes[:1]


def _refused(why: str) -> click.BadParameter:
    return click.BadParameter(why, click.get_current_context(silent=True), param_hint="'--fault'")
