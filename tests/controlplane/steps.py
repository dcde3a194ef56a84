"""What the tests of this folder have in common: how a driver is upgraded, and what must hold while that goes on."""

from __future__ import annotations

import json

from gpuward import names
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.controlplane.plane import NodeWatch, Plane, cordoned_by_us, in_progress
from tests.sampling import WHOLE

NODES = 50 if WHOLE else 20


def images_of_driver_pods(plane: Plane) -> list[str]:
    """Return the images of all driver pods."""
    pods = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"]
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


def upgrade(plane: Plane, watch: NodeWatch, version: str, **policy: object) -> None:
    """Change the driver's version, and wait until every node has the new one."""
    plane.change_policy(version=version, upgradePolicy={"autoUpgrade": True, **policy})
    watch.wait_for_rollout()
    images = images_of_driver_pods(plane)
    assert len(images) == NODES
    assert all(f":{version}-" in image for image in images)


def check_limit(watch: NodeWatch, most: int) -> None:
    """Check that so many nodes were in progress at once, and never more, and that no node was left cordoned."""
    assert watch.most(in_progress) == most
    assert watch.most(cordoned_by_us) <= most
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())


def protect(plane: Plane, max_unavailable: int | str) -> None:
    """Say how many of the GPU pods may be missing: their replacements find no place while every node is cordoned."""
    spec = {"spec": {"maxUnavailable": max_unavailable}}
    plane.kubectl("patch", "-n", WORKLOAD_NAMESPACE, "poddisruptionbudget/inference", "--type=merge", "-p", json.dumps(spec))
