"""An operator under the roles of NVIDIA's chart: all it does without, it names in one condition, and it runs into no budget."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from gpuward import names
from tests.controlplane.plane import OPERATOR, ROOT, NodeWatch, Plane, eventually
from tests.controlplane.steps import protect
from tests.nvidia_rights import roles

pytestmark = pytest.mark.controlplane

MANIFEST = ROOT / "deploy" / "nvidia-chart-rights.yaml"
WORTH_TELLING = {("list", "poddisruptionbudgets"), ("list", "rolloutpolicies"), ("list", "leases")}
NOT_NEEDED = {("patch", "events")}
"""Where an event cannot be counted on, another one is made."""
ROLES = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")


@pytest.fixture
def under_their_roles(plane: Plane) -> Iterator[Plane]:
    """Give the operator NVIDIA's roles for the test, after its stack is there."""
    with plane.operator():
        plane.policy_ready()
    ours = [plane.get(role["kind"].lower(), names.OPERATOR_NAME, "-n", names.DEFAULT_NAMESPACE) for role in roles()]
    replace(plane, roles())
    yield plane
    plane.kubectl("delete", "--ignore-not-found", "-f", str(MANIFEST))
    replace(plane, ours)
    protect(plane, "100%")
    with plane.operator():
        plane.policy_ready()


def replace(plane: Plane, wanted: list[dict[str, Any]]) -> None:
    """Replace the rules of roles."""
    for role in wanted:
        plane.kubectl("patch", role["kind"].lower(), names.OPERATOR_NAME, "-n", names.DEFAULT_NAMESPACE, "--type=merge", "-p",
                      json.dumps({"rules": role["rules"]}))


def about_rights(plane: Plane) -> list[str]:
    """Return what the condition about missing rights says."""
    found = plane.get("clusterpolicy/cluster-policy")["status"]["conditions"]
    return [condition["message"] for condition in found if condition["type"] == "RightsMissing"]


def checked(plane: Plane) -> dict[str, str]:
    """Return the line of `gpuward check` about rights."""
    command = plane.command("check", "-o", "json")
    done = subprocess.run(command, env=plane.environment, capture_output=True, text=True, check=False)
    (found,) = [line for line in json.loads(done.stdout)["findings"] if line["check"] == "rights"]
    return dict(found)


def delete_operands_roles(plane: Plane) -> None:
    """Delete what the operator made to give operands their rights: it may only make again what it holds itself."""
    for kind in ROLES:
        for each in plane.get(kind, "-n", names.DEFAULT_NAMESPACE)["items"]:
            meta = each["metadata"]
            if any(owner["kind"] == "ClusterPolicy" for owner in meta.get("ownerReferences", ())):
                plane.kubectl("delete", kind, meta["name"], "-n", names.DEFAULT_NAMESPACE)


def test_what_is_missing_is_named_once_and_nothing_is_evicted_into_a_wall(under_their_roles: Plane) -> None:
    plane, log = under_their_roles, under_their_roles.log()
    protect(plane, 0)
    delete_operands_roles(plane)
    with plane.audited() as asked, plane.operator(), NodeWatch(plane) as watch:
        eventually("the policy names them", lambda: bool(about_rights(plane)))
        plane.policy_ready()
        (told,) = about_rights(plane)
        assert all(resource in told for _, resource in WORTH_TELLING), told
        assert told.endswith("kubectl apply -f deploy/nvidia-chart-rights.yaml")
        found = checked(plane)
        assert (found["level"], found["fix"]) == ("warn", "kubectl apply -f deploy/nvidia-chart-rights.yaml")
        plane.change_policy(version="580.65.06", upgradePolicy={
            "autoUpgrade": True, "maxParallelUpgrades": 2, "maxUnavailable": "100%", "podDeletion": {"timeoutSeconds": 0}})
        eventually("a refusal is told", lambda: "EvictionRefused" in plane.gpuward("status", "--context", "gpuward"))
        plane.kubectl("apply", "-f", str(MANIFEST))
        eventually("the condition goes", lambda: not about_rights(plane))
        protect(plane, "100%")
        watch.wait_for_rollout()
    asked = [entry for entry in asked if "objectRef" in entry and entry["user"]["username"] == OPERATOR]
    refused = {(entry["verb"], entry["objectRef"]["resource"]) for entry in asked if entry["responseStatus"]["code"] == 403}
    assert WORTH_TELLING <= refused <= WORTH_TELLING | NOT_NEEDED
    evictions = [entry for entry in asked if entry["objectRef"].get("subresource") == "eviction"
                 and entry["responseStatus"]["code"] == 429]
    pods = {entry["objectRef"]["name"] for entry in evictions}
    assert 0 < len(evictions) <= 6 * len(pods), "after 0, 2, 6, 14, 30 and 60 s at most"
    assert [line["msg"] for line in log.lines() if line["msg"] in ("Rights are missing", "Cannot watch a resource")] == [
        "Rights are missing"]
