"""Driver pods that have loaded nothing, and are not what their nodes should have: they make room, as nothing goes by that."""

from __future__ import annotations

from collections.abc import Iterable

from gpuward import names
from gpuward.model.actions import DeletePod
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import IN_PROGRESS, State
from gpuward.upgrade.facts import NodeFacts


def make_room(nodes: Iterable[NodeFacts], policy: UpgradePolicy) -> tuple[DeletePod, ...]:
    """Return the deletions of such pods on nodes that do not start now: they wait for their turn, or upgrades are off.

    Without it a node has no driver for as long as that takes, for a pod that nobody wants any more.
    """
    if policy.absent or not policy.admit:
        return ()
    return tuple(_deletion(node) for node in nodes if _makes_room(node))


def _makes_room(node: NodeFacts) -> bool:
    driver = node.driver
    if driver is None or driver.phase != "Pending" or driver.ready or driver.deleting or node.driver_pods != 1:
        return False
    if node.state in IN_PROGRESS and node.state is not State.POD_RESTART_REQUIRED:
        return False
    # What an earlier driver pod has loaded may be there still: pods that run on it have to leave first.
    replaced = bool(node.target) and node.wanted and node.moving is None and not node.in_step
    return replaced and node.leaving.empty and not node.safe_load and _may_be_touched(node)


def _may_be_touched(node: NodeFacts) -> bool:
    return node.node.ready is True and not node.node.deleting and node.node.labels.get(names.UPGRADE_SKIP) != "true"


def _deletion(node: NodeFacts) -> DeletePod:
    assert node.driver is not None
    return DeletePod(node.driver.ref, node.node.name, last_look=node.leaving.look, why="it is out of date, and loaded nothing")
