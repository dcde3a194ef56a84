"""Rights of the operands."""

from __future__ import annotations

import pytest

from gpuward.operands.objects import Json
from tests.operands.build import facts, objects, states

MADE = objects(states(
    {"dcgm": {"enabled": True}, "nodeStatusExporter": {"enabled": True}, "dcgmExporter": {"enablePodUID": True}},
    facts(namespace="gpus"),
).values())


def of_kind(*kinds: str) -> list[Json]:
    return [obj for obj in MADE.values() if obj["kind"] in kinds]


@pytest.mark.parametrize("binding", of_kind("RoleBinding", "ClusterRoleBinding"), ids=lambda obj: str(obj["metadata"]["name"]))
def test_bindings_bind_what_exists(binding: Json) -> None:
    assert f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}" in MADE
    subject, = binding["subjects"]
    assert f"ServiceAccount/{subject['name']}" in MADE
    assert subject["namespace"] == "gpus"


@pytest.mark.parametrize("role", of_kind("Role"), ids=lambda obj: str(obj["metadata"]["name"]))
def test_every_operand_may_use_an_openshift_constraint(role: Json) -> None:
    assert role["rules"][0]["resources"] == ["securitycontextconstraints"]
    assert role["rules"][0]["verbs"] == ["use"]


def test_nothing_is_allowed_everywhere() -> None:
    for role in of_kind("Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])


def test_pods_run_as_accounts_that_exist() -> None:
    for daemon_set in of_kind("DaemonSet"):
        assert f"ServiceAccount/{daemon_set['spec']['template']['spec']['serviceAccountName']}" in MADE


def test_namespaced_objects_are_in_the_operators_namespace() -> None:
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "RuntimeClass"}
    for obj in MADE.values():
        assert obj["metadata"].get("namespace") == (None if obj["kind"] in cluster_wide else "gpus")
