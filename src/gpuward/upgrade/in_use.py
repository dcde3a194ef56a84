"""Nodes whose driver pod cannot load its driver, since pods run on the one that was loaded before."""

from __future__ import annotations

from gpuward.model.states import AT_REST, State
from gpuward.model.views import PodView
from gpuward.upgrade.facts import NodeFacts

_CRASHES = "CrashLoopBackOff"


def in_the_way(node: NodeFacts) -> tuple[PodView, ...]:
    """Return the GPU pods under which the driver pod of the target does not start; none if it is not that which is wrong."""
    driver, trouble = node.driver, node.trouble
    if driver is None or trouble is None or not node.in_step:
        return ()
    if trouble.waiting and not trouble.waiting.endswith(_CRASHES):  # as an image that cannot be pulled
        return ()
    there = (*node.to_evict.pods, *(blocked.pod for blocked in node.to_evict.blocked))
    return tuple(pod for pod in there if pod.uses_gpu and pod.phase == "Running" and not pod.was_left_by(node.node))


def had_the_target(node: NodeFacts) -> bool:
    """Tell whether the node ran the target before: then somebody took its driver pod away, and only people say what comes of it.

    Of a node that another operator brought to its end nobody knows better.
    """
    if node.node.record is None:
        return node.state is State.DONE
    return node.record.state in AT_REST and not node.record.forced and node.runs(node.record.target)
