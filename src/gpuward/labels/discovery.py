"""Nodes whose GPUs discovery no longer sees, and how long they keep their operands for all that.

Discovery restarts, crashes and gets upgraded, and then its labels go away for a while: that is no wish to take a driver away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.reading import read_time
from gpuward.model.record import format_time
from gpuward.model.states import IN_PROGRESS
from gpuward.model.views import NodeView

OUTAGE_PERCENT = 10
"""Percent of the GPU nodes, and more than one node: where more lose their labels together it is discovery that fails."""


_NEEDED: Final = {names.NFD_GPU_LABELS[0]: "true", names.NFD_OS_ID: "ID", names.NFD_OS_VERSION: "VERSION_ID",
                  names.NFD_KERNEL: "KERNEL"}
"""What a driver needs to know of a node: without its operating system and its kernel nobody knows which image it is for."""
NOT_DISCOVERED: Final = "no GPU node has labels of"
"""How it begins what is said where a driver cannot be made for want of labels."""

SILENCE: Final = ("node feature discovery no longer says anything about {node}: the GPU stack there stays as it is, and nobody "
                  "sees another kernel or operating system; see whether its worker runs there")


class KeptOperands(StrEnum):
    """Say why a node keeps its operands though discovery sees no GPU there."""

    OUTAGE = "many nodes lost their discovery labels together"
    SILENT = "discovery says nothing about the node at all"
    GRACE = "its GPUs may come back"
    UPGRADING = "its driver is being upgraded"
    IN_USE = "pods use its GPUs"


class Loss(msgspec.Struct, frozen=True):
    """Say of a node that had GPUs and seems to have none how it stands. Without `kept` its operands go."""

    kept: KeptOperands | None
    since: float | None = None
    """Since when discovery says that the GPUs are gone, to be remembered on the node; None for nothing to remember."""
    until: float | None = None
    """When time alone ends `kept`."""


def how_to_label(node: str = "NODE", *, with_gpu: bool = True) -> str:
    """Say how nodes get the labels that a driver needs; `with_gpu` is for those that nobody knows to have a GPU."""
    given = " ".join(f"{label}={value}" for label, value in _NEEDED.items() if with_gpu or label not in names.NFD_GPU_LABELS)
    return (f"install node feature discovery, or label nodes with GPUs (ID and VERSION_ID as in /etc/os-release, KERNEL as "
            f"`uname -r` says): kubectl label node {node} {given}")


def has_gpu(node: NodeView) -> bool:
    """Tell whether node feature discovery saw a GPU of NVIDIA's on the node's PCI bus."""
    return any(node.labels.get(label) == "true" for label in names.NFD_GPU_LABELS)


def is_lost(node: NodeView) -> bool:
    """Tell whether a node is labelled as one with GPUs, and discovery sees none."""
    return node.gpu_present and not has_gpu(node)


def is_silent(node: NodeView) -> bool:
    """Tell whether discovery says nothing about a node that had GPUs."""
    return is_lost(node) and not any(key.startswith(names.NFD_PREFIX) for key in node.labels)


def is_outage(nodes: Iterable[NodeView]) -> bool:
    """Tell whether so many nodes lack their discovery labels together that it is discovery that fails, not their GPUs.

    One about which that cannot be told is left out: it has its own trouble, and is no matter of the others.
    """
    marked = [seen for node in nodes if (seen := _seen(node)) is not None]
    lost = marked.count(False)
    return lost > 1 and lost * 100 > len(marked) * OUTAGE_PERCENT


def lost_nodes(nodes: Iterable[NodeView]) -> frozenset[str]:
    """Return the nodes that are labelled as ones with GPUs, and where discovery sees none."""
    return frozenset(node.name for node in nodes if _seen(node) is False)


def _seen(node: NodeView) -> bool | None:
    """Tell whether discovery sees the GPU of a node that is labelled as one with GPUs; None for any other."""
    try:
        return has_gpu(node) if node.gpu_present else None
    except Exception:  # whatever it is, the decision about the node itself tells it
        return None


def judge_loss(node: NodeView, *, used: bool, outage: bool, grace: float, now: float) -> Loss:
    """Return how a lost node stands.

    The grace begins anew after an outage, since discovery comes back node by node. A node about which discovery says nothing
    stays as it is: only a discovery that speaks can say that there is no GPU.
    """
    if outage:
        return Loss(KeptOperands.OUTAGE)
    if is_silent(node):
        return Loss(KeptOperands.SILENT)
    since = lost_since(node, now)
    if now < since + grace:
        return Loss(KeptOperands.GRACE, since, since + grace)
    return Loss(busy(node, used=used), since)


def busy(node: NodeView, *, used: bool) -> KeptOperands | None:
    """Return why a node's driver must not go now, or None; `used` tells whether pods need it."""
    if node.state in IN_PROGRESS:
        return KeptOperands.UPGRADING
    return KeptOperands.IN_USE if used else None


def lost_since(node: NodeView, now: float) -> float:
    """Return since when discovery says that the node's GPUs are gone: what the node remembers, or now if that is no time past."""
    try:
        return min(read_time(node.annotations.get(names.DISCOVERY_LOST, "")), now)
    except ValueError:
        return now


def told_of_loss(node: NodeView, grace: float, now: float) -> Iterator[str]:
    """Say that the operands of a node go, and when, where discovery has lost its GPUs; or that it is silent, and they stay."""
    if is_silent(node):
        yield SILENCE.format(node="this node")
        return
    if not node.gpu_present and not has_gpu(node):
        said = node.labels.get(names.GPU_PRESENT, "")
        label = f"label {names.GPU_PRESENT}={said}" if said else f"missing label {names.GPU_PRESENT}"
        yield f"its {label} says that it has no GPU: the node's GPU stack, driver included, goes once no pod uses its GPUs"
        return
    if names.DISCOVERY_LOST not in node.annotations or not is_lost(node):
        return
    since = lost_since(node, now)
    goes = (f"after {format_time(since + grace)}, unless pods use its GPUs or discovery sees them again" if now < since + grace
            else "once no pod uses its GPUs and no upgrade of it is under way, unless discovery sees them again")
    yield (f"node feature discovery has seen no NVIDIA GPU here since {format_time(since)}: the node's GPU stack, driver "
           f"included, goes {goes}")
