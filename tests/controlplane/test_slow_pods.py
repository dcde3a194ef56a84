"""Upgrades of a fleet whose drivers and validators take their time: limits hold while everybody waits for pods."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpuward import names
from tests.controlplane.plane import NodeWatch, Plane, eventually, in_progress
from tests.controlplane.steps import NODES, check_limit, protect, upgrade

pytestmark = pytest.mark.controlplane

DRIVER_SECONDS = 0.6
VALIDATOR_SECONDS = 0.4


@pytest.fixture(scope="module", autouse=True)
def slow(installed: Plane) -> Iterator[None]:
    """Let driver and validator pods not be ready at once."""
    installed.slow_pods(DRIVER_SECONDS, VALIDATOR_SECONDS)
    yield
    installed.slow_pods(0.0, 0.0)


def test_no_more_unavailable_nodes_than_allowed(installed: Plane, watch: NodeWatch) -> None:
    """A tenth of the nodes may be unavailable: all of them take at least ten times as long as one."""
    protect(installed, "100%")
    begun = time.monotonic()
    upgrade(installed, watch, "580.95.05", maxParallelUpgrades=0, maxUnavailable="10%")
    check_limit(watch, NODES // 10)
    assert time.monotonic() - begun >= 10 * (DRIVER_SECONDS + VALIDATOR_SECONDS)


def test_all_nodes_at_once(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, "100%")
    upgrade(installed, watch, "580.105.08", maxParallelUpgrades=0, maxUnavailable="100%")
    assert watch.most(in_progress) == NODES
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())


def test_a_driver_that_is_not_ready_for_a_while_is_left_alone(installed: Plane, watch: NodeWatch) -> None:
    """As after heartbeats that were missed: Kubernetes marks the node's pods, and the kubelet that is back reports them anew."""
    pod = driver_pods(installed)[0]
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]}}
    installed.kubectl("patch", "pod", pod["metadata"]["name"], "-n", names.DEFAULT_NAMESPACE, "--subresource=status",
                      "-p", json.dumps(not_ready))
    assert pod["metadata"]["uid"] not in ready_drivers(installed)
    eventually("the pod is ready again", lambda: pod["metadata"]["uid"] in ready_drivers(installed))
    assert not any(in_progress(sight) for moment in watch.moments for sight in moment.values())


def driver_pods(plane: Plane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"]
    return found


def ready_drivers(plane: Plane) -> set[str]:
    return {pod["metadata"]["uid"] for pod in driver_pods(plane)
            if any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])}
