"""The rights that we ship: all that the operator uses and grants, and nothing besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward import names
from gpuward.crd import decode
from gpuward.kube import resources
from gpuward.operands import ClusterFacts, render
from gpuward.sandbox.samples import sample_policy
from kubesandbox.timeloop import run_virtual
from tests import nvidia_rights
from tests.journeys.stage import NEW, Stage, playing

DEPLOY = Path(__file__).parents[2] / "deploy" / "operator.yaml"
IMAGES = {"DRIVER_MANAGER_IMAGE": "a/b:c", "VALIDATOR_IMAGE": "a/b:c"}
Right = tuple[str, str]
"""A verb and a resource, such as ("list", "daemonsets.apps")."""


def shipped() -> list[dict[str, Any]]:
    """Return the objects of deploy/operator.yaml."""
    return [obj for obj in yaml.safe_load_all(DEPLOY.read_text(encoding="utf-8")) if obj]


def rights(roles: Iterable[dict[str, Any]]) -> Iterator[Right]:
    """Return what roles allow, one verb and resource at a time."""
    for role in roles:
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name, _, sub = resource.partition("/")
                    full = (f"{name}.{group}" if group else name) + (f"/{sub}" if sub else "")
                    yield from ((verb, full) for verb in rule["verbs"])


def objects(kind: str) -> list[dict[str, Any]]:
    """Return the shipped objects of a kind."""
    return [obj for obj in shipped() if obj["kind"] == kind]


def operands() -> list[dict[str, Any]]:
    """Return the objects of the operands, with everything switched on."""
    found = [*_operands("kubevirt"), *_operands("kata")]
    return list({(obj["kind"], obj["metadata"]["name"]): obj for obj in found}.values())


def _operands(mode: str) -> list[dict[str, Any]]:
    policy = sample_policy()
    policy["spec"]["sandboxWorkloads"] = {"enabled": True, "mode": mode}
    policy["spec"]["vgpuManager"] |= {"enabled": True, "repository": "registry.example.com", "version": "580.95.02"}
    for section, manager in (("driver", "manager"), ("vgpuManager", "driverManager"), ("vfioManager", "driverManager")):
        policy["spec"][section][manager] |= {"repository": "registry.example.com", "image": "gpuward", "version": "1"}
    policy["spec"]["dcgm"]["enabled"] = policy["spec"]["nodeStatusExporter"]["enabled"] = True
    policy["spec"]["dcgmExporter"]["enablePodLabels"] = True
    facts = ClusterFacts(namespace="gpu-operator", os_tag="ubuntu22.04", host_os_tag="ubuntu22.04", has_gpu_nodes=True,
                         has_service_monitor_crd=True)
    states = render(decode.cluster_policy(policy), facts, IMAGES)
    assert not [state.error for state in states if state.error]
    return [obj for state in states for obj in state.objects]


def granted(kind: str) -> set[Right]:
    """Return what the operands' roles of a kind grant."""
    return set(rights(obj for obj in operands() if obj["kind"] == kind))


def named(resource: str, *verbs: str) -> list[list[str]]:
    """Return the names that rules about a resource with exactly these verbs are for."""
    return [rule.get("resourceNames", []) for role in (*objects("ClusterRole"), *objects("Role")) for rule in role["rules"]
            if rule["resources"] == [resource] and set(rule["verbs"]) == set(verbs)]


@pytest.mark.parametrize(("resource", "kind"), [("services", "Service"), ("servicemonitors", "ServiceMonitor")])
def test_rights_to_objects_with_fixed_names_are_for_these_names(resource: str, kind: str) -> None:
    made = sorted(obj["metadata"]["name"] for obj in operands() if obj["kind"] == kind)
    assert named(resource, "get", "update", "delete") == [made]
    assert named(resource, "list", "watch", "create") == [[]], "such rights cannot be for names"


def test_the_election_and_the_ledger_need_one_lease() -> None:
    assert named("leases", "get", "update", "patch") == [[names.LEADER_LEASE]]
    assert named("leases", "create") == [[]]
    assert named("leases", "list") == [[names.LEADER_LEASE]]
    assert named("customresourcedefinitions", "get") == [["servicemonitors.monitoring.coreos.com"]]


def test_of_namespaces_only_its_own_is_the_operators() -> None:
    assert named("namespaces", "get", "list", "watch", "patch") == [[names.DEFAULT_NAMESPACE]]
    assert sum(rule["resources"] == ["namespaces"] for role in objects("ClusterRole") for rule in role["rules"]) == 1


def test_the_operators_pod_keeps_to_the_restricted_profile() -> None:
    """Of Kubernetes' Pod Security Standards, though its namespace has to permit the drivers' pods far more."""
    (deployment,) = objects("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True, "runAsUser": 65532,
            "capabilities": {"drop": ["ALL"]},
        }
    assert all(set(volume) <= {"name", "emptyDir", "configMap", "secret", "projected"} for volume in pod["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@cache
def used() -> frozenset[Right]:
    """Play an installation and an upgrade, and return every verb on every resource that the operator asked for."""

    async def play() -> frozenset[Right]:
        async with playing(Stage(3)) as stage:
            await stage.installed()
            await stage.deploy("inference", 4, max_unavailable=1)
            await stage.upgrade_to(NEW)
            await stage.upgraded(NEW)
        return frozenset((key.verb, key.resource) for key in stage.client.stats.requests)

    return run_virtual(play)


ONLY_WHEN_NEEDED: set[Right] = {
    ("delete", resource)
    for resource in ("clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
                     "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "runtimeclasses.node.k8s.io",
                     "daemonsets.apps", "services", "serviceaccounts", "configmaps")
} | {
    (verb, resource)
    for verb in ("get", "update")  # after a restart objects are read, and replaced if they differ
    for resource in ("clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
                     "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "runtimeclasses.node.k8s.io",
                     "daemonsets.apps", "services", "serviceaccounts", "configmaps",
                     "servicemonitors.monitoring.coreos.com", "clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com",
                     "nodes", "pods")
} | {
    (verb, "servicemonitors.monitoring.coreos.com") for verb in ("list", "watch", "create", "delete")
} | {
    (verb, "customresourcedefinitions.apiextensions.k8s.io") for verb in ("list", "watch")  # while one is not installed
} | {
    ("patch", "rolloutpolicies.gpuward.io/status"), ("patch", "daemonsets.apps"), ("get", "secrets"), ("patch", "events"),
    ("patch", "nodes/status"), *((verb, "nodemaintenances.maintenance.nvidia.com") for verb in
                                 ("get", "list", "watch", "create", "delete")),
    ("patch", "nvidiadrivers.nvidia.com"), ("patch", "nvidiadrivers.nvidia.com/status"),
    ("update", "clusterpolicies.nvidia.com/finalizers"),
    ("get", "leases.coordination.k8s.io"), ("create", "leases.coordination.k8s.io"), ("update", "leases.coordination.k8s.io"),
    ("list", "gpuclusters.nvidia.com"),
    *((verb, "namespaces") for verb in ("get", "list", "watch", "patch")),
    ("patch", "leases.coordination.k8s.io"), ("list", "leases.coordination.k8s.io"),
}
"""What gpuward does only after a restart, for objects that are switched off, under other policies, or where more is installed."""


def test_everything_that_is_used_is_allowed() -> None:
    allowed = set(rights(objects("ClusterRole"))) | set(rights(objects("Role")))
    assert used() - allowed == set()


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_everything_that_is_granted_is_held(kind: str) -> None:
    held = set(rights(objects("ClusterRole"))) | (set(rights(objects("Role"))) if kind == "Role" else set())
    assert granted(kind) - held == set()


def test_nothing_is_allowed_without_need() -> None:
    allowed = set(rights(objects("ClusterRole"))) | set(rights(objects("Role")))
    assert allowed - used() - granted("ClusterRole") - granted("Role") - ONLY_WHEN_NEEDED == set()


def test_every_crd_that_may_be_waited_for_may_be_watched() -> None:
    followed = {str(resource) for resource in resources.KINDS.values() if resource.is_custom} - {str(resources.PROMETHEUS_RULES)}
    allowed = {name for role in objects("ClusterRole") for rule in role["rules"] for name in rule.get("resourceNames", ())
               if rule["resources"] == ["customresourcedefinitions"] and rule["verbs"] == ["list", "watch"]}
    assert allowed == followed


def test_workloads_may_be_deleted_where_their_owner_keeps_them() -> None:
    """A namespaced role, which is enough for driver pods, would not let `killAtDeadline` work."""
    assert ("delete", "pods") in set(rights(objects("ClusterRole")))


def test_the_deployment_runs_with_these_rights_as_nobody() -> None:
    (deployment,) = objects("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (account,) = objects("ServiceAccount")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    for binding in (*objects("ClusterRoleBinding"), *objects("RoleBinding")):
        assert [subject["name"] for subject in binding["subjects"]] == [account["metadata"]["name"]]
    assert pod["containers"][0]["securityContext"]["runAsNonRoot"] is True


def test_the_manifest_for_nvidias_chart_gives_what_its_roles_lack_and_nothing_besides() -> None:
    added = [obj for obj in yaml.safe_load_all((DEPLOY.parent / "nvidia-chart-rights.yaml").read_text(encoding="utf-8")) if obj]
    everywhere, inside = (set(rights([role])) for role in nvidia_rights.roles())
    lacking = set(rights(objects("ClusterRole"))) - everywhere
    of_old_charts = {(verb, "resourceclaims.resource.k8s.io") for verb in ("list", "watch")}
    on_openshift = {("use", "securitycontextconstraints.security.openshift.io")}
    assert set(rights(obj for obj in added if obj["kind"] == "ClusterRole")) == (lacking - on_openshift) | of_old_charts
    lacking_inside = set(rights(objects("Role"))) - everywhere - inside
    assert set(rights(obj for obj in added if obj["kind"] == "Role")) == lacking_inside
    assert ("create", "nodemaintenances.maintenance.nvidia.com") in lacking_inside
