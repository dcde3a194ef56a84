"""An operator that lacks one of its rights: it says which, does all the rest, and goes on when the right is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

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
    give_rights(plane, kept)


def give_rights(plane: Plane, rules: list[Any]) -> None:
    """Make these the operator's cluster-wide rights."""
    plane.kubectl("patch", ROLE, "--type=merge", "-p", json.dumps({"rules": rules}))


def conditions(plane: Plane) -> dict[str, dict[str, str]]:
    """Return the conditions of the policy by their type."""
    found = plane.get("clusterpolicy/cluster-policy")["status"]["conditions"]
    return {condition["type"]: condition for condition in found}


@pytest.fixture
def rules(plane: Plane) -> Iterator[list[Any]]:
    """Remember the operator's rights, and give them all back after the test."""
    with plane.operator():
        plane.policy_ready()
    protect(plane, "100%")
    rules = plane.get(ROLE)["rules"]
    yield rules
    give_rights(plane, rules)


def test_what_is_forbidden_is_named_and_the_rest_done(plane: Plane, rules: list[Any]) -> None:
    """One right is missing from the start, and one is taken while the operator runs."""
    take_right(plane, "runtimeclasses")
    log = plane.log()
    with plane.operator():
        eventually("the policy names it", lambda: "runtimeclasses" in conditions(plane)["Error"]["message"])
        error = conditions(plane)["Error"]
        assert error["status"] == "True"
        assert "RuntimeClass objects cannot be listed" in error["message"]
        take_right(plane, "events")
        with NodeWatch(plane) as watch:
            upgrade(plane, watch, "580.126.09", maxParallelUpgrades=0, maxUnavailable="100%")
        said = log.failures("forbidden")
        assert [line["msg"] for line in said] == ["Cannot watch a resource", "Cannot write events"]
        assert said[0]["resource"] == "runtimeclasses.node.k8s.io"
        assert 'cannot list resource "runtimeclasses"' in said[0]["error"]
        assert 'cannot create resource "events"' in said[1]["error"]
        give_rights(plane, rules)
        plane.policy_ready()
        assert conditions(plane)["Error"]["status"] == "False"
        assert log.failures("forbidden") == said
