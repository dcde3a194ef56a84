"""The nodes: what discovery says of them, and what runs their containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpuward import names
from gpuward.labels.discovery import has_gpu, how_to_label
from gpuward.model.systems import kernel_of, system_of
from gpuward.model.views import NodeView
from gpuward.operands.cluster import RUNTIMES
from gpuward.report.checks.facts import Finding, Inspected, Level, Unseen, unseen


def discovery(facts: Inspected) -> Iterator[Finding]:
    """Say whether node feature discovery runs, and has found GPUs."""
    if isinstance(facts.nodes, Unseen):
        yield unseen("discovery", facts.nodes)
        return
    labelled = [node for node in facts.nodes if any(label.startswith(names.NFD_PREFIX) for label in node.labels)]
    gpus = [node for node in facts.nodes if has_gpu(node)]
    if not labelled:
        yield Finding("discovery", Level.FAIL, "no node has labels of node feature discovery", how_to_label())
    elif not gpus:
        yield Finding("discovery", Level.WARN, f"no NVIDIA GPU on any of {len(labelled)} nodes with labels of node feature "
                      "discovery", "see that its workers run on the nodes with GPUs")
    else:
        yield Finding("discovery", Level.OK, f"{len(gpus)} of {len(facts.nodes)} nodes have GPUs")
        yield from _bare(gpus)


def _bare(gpus: list[NodeView]) -> Iterator[Finding]:
    """Name nodes with GPUs that do not say what they run."""
    bare = [node.name for node in gpus if not (system_of(node.labels) and kernel_of(node.labels))]
    if not bare:
        return
    who = f"{bare[0]} and {len(bare) - 1} more lack labels of their" if bare[1:] else f"{bare[0]} lacks labels of its"
    yield Finding("discovery", Level.WARN, f"{who} operating system or kernel: no other driver image can be chosen",
                  how_to_label("NODE" if bare[1:] else bare[0], with_gpu=False))


def runtimes(facts: Inspected) -> Iterator[Finding]:
    """Say whether the container runtime of nodes with GPUs is one that the toolkit can set up, and the same on all."""
    if isinstance(facts.nodes, Unseen):
        return
    counts = Counter(node.runtime for node in facts.nodes if has_gpu(node))
    told = ", ".join(f"{runtime or 'unknown'} on {count}" for runtime, count in sorted(counts.items()))
    if unknown := sorted(set(counts) - set(RUNTIMES)):
        yield Finding("runtime", Level.FAIL, f"{told}: the container toolkit cannot set up {unknown[0] or 'an unknown runtime'}",
                      f"use one of {', '.join(RUNTIMES)} on nodes with GPUs")
    elif len(counts) > 1:
        yield Finding("runtime", Level.WARN, f"{told}: one container toolkit serves all nodes", "use the same on all nodes")
    elif counts:
        yield Finding("runtime", Level.OK, told)
