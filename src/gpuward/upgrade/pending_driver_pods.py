"""Pending driver pods: those that are out of date have loaded nothing, so that deleting them takes nothing away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import DeletePod
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import PodView
from gpuward.model.waits import Starting
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.progress import NodeProgress

PLACED_WITHIN: Final = 10.0
"""Seconds that the scheduler may take to place a driver pod before anybody is told."""


def delete_outdated(nodes: Iterable[NodeFacts], policy: UpgradePolicy) -> tuple[DeletePod, ...]:
    """Return the deletions of those on nodes that do not start now: they wait for their turn, or upgrades are off.

    Without it a node has no driver for as long as that takes, for a pod that nobody wants any more.
    """
    if policy.absent or not policy.admit:
        return ()
    return tuple(_deletion(node) for node in nodes if _is_outdated(node))


def has_pending_driver(node: NodeFacts) -> bool:
    """Tell whether the driver pod has loaded nothing, as far as its phase says."""
    return node.driver is not None and node.driver.phase == "Pending"


def _is_outdated(node: NodeFacts) -> bool:
    driver = node.driver
    if driver is None or not has_pending_driver(node) or driver.ready or driver.deleting or node.driver_pods != 1:
        return False
    if _makes_room(driver) or _is_left(driver, node) or node.none_follows:
        return False
    if node.state in IN_PROGRESS and node.state is not State.POD_RESTART_REQUIRED:
        return False
    # What an earlier driver pod has loaded may be there still: pods that run on it have to leave first.
    replaced = bool(node.target) and node.wanted and node.moving is None and not node.in_step
    return replaced and node.to_evict.empty and not node.safe_load and _may_be_touched(node)


def _makes_room(driver: PodView) -> bool:
    """Tell whether the driver manager is at work: it may have cordoned the node, and only at its end it lifts that cordon."""
    now = driver.progress
    return driver.begun and now is not None and bool(now.init) and not now.reason


def _is_left(driver: PodView, node: NodeFacts) -> bool:
    """Tell whether the DaemonSet that the pod was taken from is there still, and on its way out: it would make the same again,
    and be kept from going by that.
    """
    return driver.labels.get("app") == names.LEFT_DRIVER_APP and node.runs(driver.revision)


def _may_be_touched(node: NodeFacts) -> bool:
    return node.node.ready is True and not node.node.deleting and node.node.labels.get(names.UPGRADE_SKIP) != "true"


def _deletion(node: NodeFacts) -> DeletePod:
    assert node.driver is not None
    return DeletePod(node.driver.ref, node.node.name, last_look=node.to_evict.look, why="it is out of date, and loaded nothing",
                     unplaced=node.unplaced)


def unplaced_if_it_lasts(path: NodeProgress, now: float) -> NodeProgress:
    """Return the path of a node whose new driver pod has just been made: that the pod before it has yet to end keeps it from its
    place for a moment, and is nobody's trouble.
    """
    hold, driver = path.hold, path.node.driver
    if hold is None or driver is None or hold.reason is not Reason.DRIVER_UNPLACED or not isinstance(hold.what, Starting):
        return path
    until = driver.created + PLACED_WITHIN
    if now >= until:
        return path
    starting = msgspec.structs.replace(hold.what, reason=Reason.DRIVER_STARTING)
    return msgspec.structs.replace(
        path, hold=msgspec.structs.replace(hold, what=starting), retry_at=min(until, path.retry_at or until))
