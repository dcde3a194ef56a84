"""An operator that lacks one of its rights: it says which, does all the rest, and goes on when the right is given."""

from __future__ import annotations

import json

import pytest

from gpuward import names
from tests.controlplane.plane import NodeWatch, Plane, eventually
from tests.controlplane.steps import protect, upgrade

pytestmark = pytest.mark.controlplane

ROLE = f"clusterrole/{names.OPERATOR_NAME}"


def take_right(plane: Plane, resource: str) -> None:
    """Remove the rules about a resource from the operator's cluster role."""
    rules = plane.get(ROLE)["rules"]
    kept = [rule for rule in rules if resource not in rule["resources"]]
    assert len(kept) == len(rules) - 1
    plane.kubectl("patch", ROLE, "--type=merge", "-p", json.dumps({"rules": kept}))


def conditions(plane: Plane) -> dict[str, dict[str, str]]:
    """Return the conditions of the policy by their type."""
    found = plane.get("clusterpolicy/cluster-policy")["status"]["conditions"]
    return {condition["type"]: condition for condition in found}


def test_a_right_that_is_missing(plane: Plane) -> None:
    with plane.operator():
        plane.policy_ready()
    protect(plane, "100%")
    rules = plane.get(ROLE)["rules"]
    take_right(plane, "runtimeclasses")
    log = plane.log()
    try:
        with plane.operator():
            eventually("the policy names it", lambda: "runtimeclasses" in conditions(plane)["Error"]["message"])
            error = conditions(plane)["Error"]
            assert error["status"] == "True"
            assert "RuntimeClass objects cannot be listed" in error["message"]
            with NodeWatch(plane) as watch:
                upgrade(plane, watch, "580.126.09", maxParallelUpgrades=0, maxUnavailable="100%")
            (line,) = log.failures()
            assert (line["msg"], line["resource"]) == ("Cannot follow", "runtimeclasses.node.k8s.io")
            assert "forbidden" in line["error"]
            plane.kubectl("patch", ROLE, "--type=merge", "-p", json.dumps({"rules": rules}))
            plane.policy_ready()
            assert conditions(plane)["Error"]["status"] == "False"
            assert log.failures() == [line]
    finally:
        plane.kubectl("patch", ROLE, "--type=merge", "-p", json.dumps({"rules": rules}))
