"""The operator on a real Kubernetes API, under the rights that are shipped: it installs the stack and upgrades a fleet."""

from __future__ import annotations

import json

import pytest

from gpuward import names
from tests.controlplane.plane import NodeWatch, Plane
from tests.controlplane.steps import NODES, check_limit, protect, upgrade

pytestmark = pytest.mark.controlplane

CORDONED = "gpu-02"


def test_the_stack_is_installed(installed: Plane) -> None:
    sets = installed.get("daemonsets", "-n", names.DEFAULT_NAMESPACE)["items"]
    wanted = {each["metadata"]["name"]: each["status"]["desiredNumberScheduled"] for each in sets}
    assert wanted[names.DRIVER_APP] == wanted[names.VALIDATOR_APP] == NODES
    assert all(each["status"].get("numberUnavailable", 0) == 0 for each in sets)
    events = installed.get("events", "-n", names.DEFAULT_NAMESPACE)["items"]
    assert [event["message"] for event in events if event["reason"] == "FailedCreate"] == []


@pytest.mark.parametrize(("limit", "version"), [(1, "580.95.05"), (5, "580.82.07")])
def test_no_more_nodes_at_a_time_than_allowed(installed: Plane, watch: NodeWatch, limit: int, version: str) -> None:
    """A budget for one missing GPU pod stands in nobody's way: there is room on the other nodes."""
    protect(installed, limit)
    upgrade(installed, watch, version, maxParallelUpgrades=limit, maxUnavailable="25%")
    check_limit(watch, limit)


def test_the_cordon_of_an_administrator_is_kept(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, "100%")
    installed.kubectl("cordon", CORDONED)
    try:
        upgrade(installed, watch, "580.126.20", maxParallelUpgrades=0, maxUnavailable="100%")
        assert [name for name, sight in watch.moments[-1].items() if sight.unschedulable] == [CORDONED]
        assert all(moment[CORDONED].unschedulable for moment in watch.moments if moment[CORDONED].state != "upgrade-done")
    finally:
        installed.kubectl("uncordon", CORDONED)


def test_status_agrees_with_the_cluster(installed: Plane) -> None:
    nodes = json.loads(installed.gpuward("status", "--context", "gpuward", "-o", "json"))["nodes"]
    states = {node["name"]: node["state"] for node in nodes}
    assert states == {f"gpu-{number:02}": "upgrade-done" for number in range(1, NODES + 1)}
