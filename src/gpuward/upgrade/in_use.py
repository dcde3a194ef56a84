"""Nodes whose driver pod cannot load its driver, since pods run on the one that was loaded before."""

from __future__ import annotations

from gpuward.model.states import AT_REST, State
from gpuward.model.views import PodView
from gpuward.upgrade.facts import NodeFacts

_CRASHES = "CrashLoopBackOff"


def running_under(node: NodeFacts) -> tuple[PodView, ...]:
    """Return all pods under which the driver pod of the target does not start, virtual machines among them."""
    return (*in_the_way(node), *(node.machines if _crashes(node) else ()))


def in_the_way(node: NodeFacts) -> tuple[PodView, ...]:
    """Return the GPU pods under which the driver pod of the target does not start, and which an upgrade evicts; none if it is not
    that which is wrong.
    """
    if not _crashes(node):
        return ()
    there = (*node.to_evict.pods, *(blocked.pod for blocked in node.to_evict.blocked))
    return tuple(pod for pod in there if pod.uses_gpu and pod.phase == "Running" and not pod.was_left_by(node.node))


def _crashes(node: NodeFacts) -> bool:
    """Tell whether the driver pod of the target ends in errors; one with an image that cannot be pulled does not."""
    trouble = node.trouble
    if node.driver is None or trouble is None or not node.in_step:
        return False
    return not trouble.waiting or trouble.waiting.endswith(_CRASHES)


def had_the_target(node: NodeFacts) -> bool:
    """Tell whether the node ran the target before: then somebody took its driver pod away, and only people say what comes of it.

    Of a node that another operator brought to its end nobody knows better.
    """
    if node.node.record is None:
        return node.state is State.DONE
    return node.record.state in AT_REST and not node.record.forced and node.runs(node.record.target)
