"""Policies and nodes that make no sense, on a real Kubernetes API: each is refused there, or told, and nothing breaks.

GPUWARD_FAULTS=full tries a thousand of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpuward import names
from gpuward.crd import decode, validate
from gpuward.crd.clusterpolicy import ClusterPolicy
from gpuward.errors import PolicyError
from tests.controlplane.few import few_nodes, reasons
from tests.controlplane.mutations import Writer, example, node_patches, policy_specs, undoing
from tests.controlplane.plane import Plane, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.xdist_group("few nodes")]

MUTATIONS = 1000 if os.environ.get("GPUWARD_FAULTS") == "full" else 100
POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
NODES = 4
NODE_NAMES = [f"gpu-{number}" for number in range(1, NODES + 1)]
HARMLESS = {"MetadataBehind"}
"""What is left of labels that pods had for a while."""
tried = settings(max_examples=MUTATIONS // 2, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
                 suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def plane(wanted: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Keep a small control plane running, apart from the fleet of the other tests."""
    with few_nodes(tmp_path_factory.mktemp("mutations") / "run", nodes=NODES, with_workloads=True) as plane:
        yield plane


@pytest.fixture
def writer(installed: Plane) -> Iterator[Writer]:
    """Change things while the operator runs. It puts everything right in the end, and none of its passes has failed."""
    log = installed.log()
    writer = Writer(installed.kubeconfig)
    patches = {node["metadata"]["name"]: undoing(node) for node in installed.get("nodes")["items"]}
    yield writer
    assert writer.patch(POLICY, replaced(example()["spec"]), "json")[0] == 200
    for name, patch in patches.items():
        assert writer.patch(f"/api/v1/nodes/{name}", patch, "merge")[0] == 200
    writer.close()
    eventually("all is well again", lambda: set(reasons(installed).values()) <= HARMLESS and ready(installed))
    assert [line for line in log.lines() if "exception" in line or line["msg"] == "A pass failed"] == []


def replaced(spec: object) -> list[dict[str, object]]:
    """Return the patch that replaces a whole spec."""
    return [{"op": "replace", "path": "/spec", "value": spec}]


def ready(plane: Plane) -> bool:
    """Tell whether the ClusterPolicy and all nodes are as they should be."""
    return bool(plane.get("clusterpolicy/cluster-policy").get("status", {}).get("state") == "ready")


def problems(policy: dict[str, Any]) -> list[PolicyError]:
    """Return what gpuward finds wrong with a policy that the API server took."""
    try:
        return validate.cluster_policy(decode.cluster_policy(policy))
    except PolicyError:
        return decode.violations_of(policy, ClusterPolicy)


def told(plane: Plane, problem: PolicyError) -> bool:
    """Tell whether the policy's condition names what is wrong."""
    conditions = plane.get("clusterpolicy/cluster-policy")["status"].get("conditions", ())
    return any(each["type"] == "Error" and each["status"] == "True" and problem.field in each["message"] for each in conditions)


def test_mutated_policies(installed: Plane, writer: Writer) -> None:
    outcomes = {"refused": 0, "told": 0, "followed": 0}

    @tried
    @given(policy_specs())
    def mutate(spec: dict[str, Any]) -> None:
        code, answer = writer.patch(POLICY, replaced(spec), "json")
        if code != 200:
            assert code in (400, 422), answer
            outcomes["refused"] += 1
        elif found := problems(answer):
            eventually(f"{found[0]} is told", lambda: told(installed, found[0]))
            outcomes["told"] += 1
        else:
            outcomes["followed"] += 1

    mutate()
    note(installed, policies=outcomes)
    assert all(outcomes.values()), outcomes


def test_mutated_nodes(installed: Plane, writer: Writer) -> None:
    outcomes = {"refused": 0, "taken": 0}
    right = undoing(installed.get("node", NODE_NAMES[0]))

    @tried
    @given(st.sampled_from(NODE_NAMES), node_patches())
    def mutate(name: str, patch: dict[str, Any]) -> None:
        code, answer = writer.patch(f"/api/v1/nodes/{name}", patch, "merge")
        assert code in (200, 400, 422), answer
        outcomes["taken" if code == 200 else "refused"] += 1
        if not sum(outcomes.values()) % 50:
            assert "Undecided" not in reasons(installed).values()

    mutate()
    note(installed, nodes=outcomes)
    assert all(outcomes.values()), outcomes
    right["metadata"]["labels"][names.UPGRADE_STATE] = "upgrade-perhaps"
    writer.patch(f"/api/v1/nodes/{NODE_NAMES[0]}", right, "merge")
    eventually("an unknown state is told", lambda: reasons(installed).get(NODE_NAMES[0]) == "UnknownState")


def note(plane: Plane, **outcomes: dict[str, int]) -> None:
    """Leave the figures beside the logs, for people."""
    with (plane.state / "mutations.txt").open("a") as file:
        file.write(f"{outcomes}\n")
