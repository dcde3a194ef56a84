"""On a real Kubernetes API: drivers that a ClusterPolicy leaves to an NVIDIADriver run on until each of them is replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from gpuward import names
from tests.controlplane.plane import NodeWatch, Plane, eventually, in_progress
from tests.controlplane.steps import NODES, protect
from tests.operands.build import EXAMPLES

pytestmark = pytest.mark.controlplane

VERSION = "580.65.06"


def driver_pods(plane: Plane) -> dict[str, str]:
    """Return the images of the driver pods that have a node, by uid."""
    pods = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"{names.COMPONENT_LABEL}={names.DRIVER_COMPONENT}")["items"]
    return {pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"] for pod in pods if pod["spec"].get("nodeName")}


def condition(plane: Plane) -> str:
    """Return the reason of the NVIDIADriver's true condition."""
    found = plane.get("nvidiadriver", "default").get("status", {}).get("conditions", ())
    return next((one["reason"] for one in found if one["status"] == "True"), "")


def are_back(plane: Plane) -> bool:
    """Tell whether every node has the ClusterPolicy's driver, and is done with it."""
    pods = plane.get("pods", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"]
    states = [node["metadata"]["labels"].get(names.UPGRADE_STATE) for node in plane.get("nodes")["items"]]
    return len(pods) == NODES == states.count("upgrade-done")


@pytest.fixture
def left(installed: Plane) -> Iterator[Plane]:
    """Leave the drivers to NVIDIADrivers, and take them back at the end."""
    installed.change_policy(useNvidiaDriverCRD=True)
    try:
        yield installed
    finally:
        installed.kubectl("delete", "nvidiadriver", "--all")
        installed.change_policy(useNvidiaDriverCRD=False)
        eventually("the ClusterPolicy's drivers to be back", lambda: are_back(installed))
        installed.policy_ready()


def test_drivers_are_handed_over(left: Plane, watch: NodeWatch) -> None:
    protect(left, "100%")
    before = driver_pods(left)
    assert len(before) == NODES
    eventually("the DaemonSet to go", lambda: not left.get(
        "daemonsets", "-n", names.DEFAULT_NAMESPACE, "-l", f"app={names.DRIVER_APP}")["items"])
    assert driver_pods(left).keys() == before.keys(), "they run on"
    body = yaml.safe_load((EXAMPLES / "nvidiadriver.yaml").read_text(encoding="utf-8"))
    body["spec"] |= {"version": VERSION}
    body["spec"]["upgradePolicy"] |= {"maxParallelUpgrades": 10, "maxUnavailable": "50%"}
    left.kubectl("apply", "-f", "-", given=json.dumps(body))
    eventually("every driver to be replaced",
               lambda: len(after := driver_pods(left)) == NODES and not after.keys() & before.keys())
    watch.wait_for_rollout()
    assert all(f":{VERSION}-" in image for image in driver_pods(left).values())
    assert watch.most(in_progress) <= 10
    eventually("the NVIDIADriver to be ready", lambda: condition(left) == "Reconciled")
