"""The operator on a real Kubernetes API, under the rights that are shipped: it installs the stack and upgrades a fleet."""

from __future__ import annotations

import json

import pytest

from gpuward import names
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.controlplane.conftest import NODES
from tests.controlplane.plane import OPERATOR, WRITES, NodeWatch, Plane, cordoned_by_us, in_progress

pytestmark = pytest.mark.controlplane


def images_of_driver_pods(plane: Plane) -> list[str]:
    pods = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"]
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


def upgrade(plane: Plane, watch: NodeWatch, version: str, **policy: object) -> None:
    """Change the driver's version, and wait until every node has the new one."""
    plane.change_policy(version=version, upgradePolicy={"autoUpgrade": True, **policy})
    watch.wait_for_rollout()
    images = images_of_driver_pods(plane)
    assert len(images) == NODES
    assert all(f":{version}-" in image for image in images)


def protect(plane: Plane, max_unavailable: int | str) -> None:
    """Say how many of the GPU pods may be missing: their replacements find no place while every node is cordoned."""
    spec = {"spec": {"maxUnavailable": max_unavailable}}
    plane.kubectl("patch", "-n", WORKLOAD_NAMESPACE, "poddisruptionbudget/inference", "--type=merge", "-p", json.dumps(spec))


def test_the_stack_is_installed(installed: Plane) -> None:
    sets = installed.get("daemonsets", "-n", names.DEFAULT_NAMESPACE)["items"]
    wanted = {each["metadata"]["name"]: each["status"]["desiredNumberScheduled"] for each in sets}
    assert wanted[names.DRIVER_APP] == wanted[names.VALIDATOR_APP] == NODES
    assert all(each["status"].get("numberUnavailable", 0) == 0 for each in sets)
    events = installed.get("events", "-n", names.DEFAULT_NAMESPACE)["items"]
    assert [event["message"] for event in events if event["reason"] == "FailedCreate"] == []


def test_one_node_at_a_time(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, 1)
    upgrade(installed, watch, "580.95.05", maxParallelUpgrades=1, maxUnavailable="25%")
    assert watch.most(in_progress) == 1
    assert watch.most(cordoned_by_us) == 1
    assert not any(sight.unschedulable for sight in watch.moments[-1].values())


def test_all_nodes_at_once(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, "100%")
    upgrade(installed, watch, "580.105.08", maxParallelUpgrades=0, maxUnavailable="100%")
    assert watch.most(in_progress) > 1


def test_no_more_unavailable_nodes_than_allowed(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, "100%")
    upgrade(installed, watch, "580.126.09", maxParallelUpgrades=0, maxUnavailable=2)
    assert watch.most(in_progress) == 2


def test_the_cordon_of_an_administrator_is_kept(installed: Plane, watch: NodeWatch) -> None:
    protect(installed, "100%")
    installed.kubectl("cordon", "gpu-2")
    try:
        upgrade(installed, watch, "580.126.20", maxParallelUpgrades=0, maxUnavailable="100%")
        assert [name for name, sight in watch.moments[-1].items() if sight.unschedulable] == ["gpu-2"]
        assert all(moment["gpu-2"].unschedulable for moment in watch.moments if moment["gpu-2"].state != "upgrade-done")
    finally:
        installed.kubectl("uncordon", "gpu-2")


def test_status_agrees_with_the_cluster(installed: Plane) -> None:
    nodes = json.loads(installed.gpuward("status", "--context", "gpuward", "-o", "json"))["nodes"]
    assert {node["name"]: node["state"] for node in nodes} == {f"gpu-{number}": "upgrade-done" for number in range(1, NODES + 1)}


def test_a_restarted_operator_writes_nothing(installed: Plane) -> None:
    """Start a second operator beside the first, which is idle: what both agree on is not written again."""
    with installed.audited() as requests:
        installed.first_verdict()
    asked = [entry for entry in requests if entry["user"]["username"] == OPERATOR]
    assert {"get", "list", "watch"} <= {entry["verb"] for entry in asked}
    assert [entry["requestURI"] for entry in asked if entry["verb"] in WRITES] == []
