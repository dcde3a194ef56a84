"""What an administrator does with kubectl, on either server."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuward.crd.generate import all_crds, as_yaml
from gpuward.kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, PODS
from tests.contract.api import Api, Object
from tests.contract.crd_helpers import until_served
from tests.contract.objects import budget, names, workload

pytestmark = pytest.mark.kubectl


def on_own_node(api: Api, kind: str, name: str, **spec: object) -> Object:
    api.node()
    return workload(kind, name, template={"nodeSelector": {"test": api.ns}}, **spec)


@pytest.mark.parametrize("flags", [[], ["--server-side"], ["--validate=strict"], ["--validate=false"]])
def test_apply_creates_changes_and_repeats(api: Api, flags: list[str]) -> None:
    body = workload("Deployment", "w", replicas=0)
    assert "created" in api.kubectl("apply", *flags, "-f", "-", given=yaml.safe_dump(body)) or flags == ["--server-side"]
    before = api.get(f"{DEPLOYMENTS.path(api.ns)}/w").body["metadata"]
    api.kubectl("apply", *flags, "-f", "-", given=yaml.safe_dump(body))
    assert api.get(f"{DEPLOYMENTS.path(api.ns)}/w").body["metadata"]["generation"] == before["generation"]
    body["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "side:1"})
    api.kubectl("apply", *flags, "-f", "-", given=yaml.safe_dump(body))
    body["spec"]["template"]["spec"]["containers"].pop()
    api.kubectl("apply", *flags, "-f", "-", given=yaml.safe_dump(body))
    found = api.get(f"{DEPLOYMENTS.path(api.ns)}/w").body
    assert [one["name"] for one in found["spec"]["template"]["spec"]["containers"]] == ["main"]
    assert found["metadata"]["generation"] == before["generation"] + 2


def test_a_list_that_get_wrote_is_applied(api: Api) -> None:
    """As a copy of policies is given back."""
    body = {"apiVersion": "v1", "kind": "List", "items": [workload("Deployment", name, replicas=0) for name in ("v", "w")]}
    for given in (yaml.safe_dump(body), ""):
        api.kubectl("apply", "-f", "-", given=given or api.kubectl("get", "deployments", "-o", "yaml"))
        assert api.kubectl("get", "deployments", "-o", "name").split() == ["deployment.apps/v", "deployment.apps/w"]


def test_apply_refuses_what_no_deployment_has(api: Api) -> None:
    body = workload("Deployment", "w", replica=1)
    assert 'unknown field "spec.replica"' in api.kubectl("apply", "-f", "-", given=yaml.safe_dump(body), fails=True)


def test_explain_and_edit_a_custom_resource(api: Api) -> None:
    api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=as_yaml(*all_crds()))
    api.kubectl("wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com", "--timeout=20s")
    until_served(api.server, "/apis/nvidia.com/v1")
    until_served(api.server, "/openapi/v3/apis/nvidia.com/v1")
    until_served(api.server, "/openapi/v3/apis/gpuward.io/v1alpha1")
    told = api.kubectl("explain", "clusterpolicy.spec.driver.upgradePolicy")
    assert "maxParallelUpgrades" in told
    assert "autoUpgrade" in told
    told = api.kubectl("explain", "rolloutpolicy.spec.deadlines")
    assert "pod-restart-required has 30m" in " ".join(told.split())
    assert "FIELD: selector" in api.kubectl("explain", "daemonset.spec.selector")
    assert "image\t<string>" in api.kubectl("explain", "pod.spec.containers")


def test_edit(api: Api) -> None:
    api.kubectl("create", "configmap", "a", "--from-literal=x=before")
    assert "edited" in api.kubectl("edit", "configmap", "a", KUBE_EDITOR="sed -i s/before/after/")
    assert api.kubectl("get", "configmap", "a", "-o", "jsonpath={.data.x}") == "after"


def test_drain_waits_for_its_budget(api: Api) -> None:
    api.made(DEPLOYMENTS.path(api.ns), on_own_node(api, "Deployment", "web", replicas=2))
    api.made(DAEMON_SETS.path(api.ns), workload("DaemonSet", "agent", template={"nodeSelector": {"test": api.ns}}))
    api.until(PODS.path(api.ns), lambda found: len(found) == 3 and all(one["status"].get("phase") == "Running" for one in found))
    guard = api.made(f"/apis/policy/v1/namespaces/{api.ns}/poddisruptionbudgets", budget("guard", "web", minAvailable=2))
    api.when(f"/apis/policy/v1/namespaces/{api.ns}/poddisruptionbudgets/guard",
             lambda one: one.get("status", {}).get("currentHealthy") == 2)
    node = f"{api.ns}-a"
    assert "ignore-daemonsets" in api.kubectl("drain", node, "--timeout=1s", fails=True)
    assert "Cannot evict pod" in api.kubectl("drain", node, "--ignore-daemonsets", "--timeout=2s", fails=True)
    assert api.get(NODES.path("", node)).body["spec"]["unschedulable"] is True
    api.delete(f"/apis/policy/v1/namespaces/{api.ns}/poddisruptionbudgets/{guard['metadata']['name']}")
    assert f"node/{node} drained" in api.kubectl("drain", node, "--ignore-daemonsets", "--timeout=20s")
    left = api.get(PODS.path(api.ns), fieldSelector=f"spec.nodeName={node}").body
    assert [name.rpartition("-")[0] for name in names(left)] == ["agent"]
    assert "uncordoned" in api.kubectl("uncordon", node)


def test_wait_and_rollout_status(api: Api) -> None:
    api.made(DEPLOYMENTS.path(api.ns), on_own_node(api, "Deployment", "web", replicas=1))
    assert 'deployment "web" successfully rolled out' in api.kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert "condition met" in api.kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=20s")
    api.made(DAEMON_SETS.path(api.ns), workload("DaemonSet", "agent", template={"nodeSelector": {"test": api.ns}}))
    assert 'daemon set "agent" successfully rolled out' in api.kubectl("rollout", "status", "daemonset/agent", "--timeout=20s")
    api.kubectl("set", "image", "daemonset/agent", "main=registry.example/app:2")
    assert 'daemon set "agent" successfully rolled out' in api.kubectl("rollout", "status", "daemonset/agent", "--timeout=20s")
    assert "REVISION" in api.kubectl("rollout", "history", "daemonset/agent")
    api.kubectl("rollout", "undo", "daemonset/agent")
    assert 'successfully rolled out' in api.kubectl("rollout", "status", "daemonset/agent", "--timeout=20s")
    image = api.kubectl("get", "daemonset/agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    assert image == "registry.example/app:1"
    api.kubectl("rollout", "restart", "daemonset/agent")
    assert "successfully rolled out" in api.kubectl("rollout", "status", "daemonset/agent", "--timeout=20s")
    api.kubectl("scale", "deployment/web", "--replicas=2")
    api.kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    api.kubectl("delete", "deployment/web", "--timeout=20s")
    api.kubectl("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=20s")


def test_who_may_what(api: Api) -> None:
    assert api.kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "*.*" in api.kubectl("auth", "can-i", "--list")
    assert "Username" in api.kubectl("auth", "whoami")


def test_get_describe_and_diff(api: Api) -> None:
    api.made(DEPLOYMENTS.path(api.ns), on_own_node(api, "Deployment", "web", replicas=1))
    api.kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    lines = api.kubectl("get", "deployment,replicaset,pod").splitlines()
    assert [line.split()[0] for line in lines if line] [:2] == ["NAME", "deployment.apps/web"]
    assert "1/1" in lines[1]
    assert "NewReplicaSet:   web-" in api.kubectl("describe", "deployment", "web")
    (pod,) = api.get(PODS.path(api.ns)).body["items"]
    assert "Node:             " + f"{api.ns}-a" in api.kubectl("describe", "pod", pod["metadata"]["name"])
    assert api.kubectl("get", "pods", "-o", "name") == f"pod/{pod['metadata']['name']}\n"
    found = json.loads(api.kubectl("get", "pods", "-o", "json"))["items"][0]
    assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")


def test_label_annotate_taint_and_cordon(api: Api) -> None:
    node = api.node()
    api.kubectl("label", "node", node, "team=blue")
    assert "already has a value" in api.kubectl("label", "node", node, "team=red", fails=True)
    api.kubectl("label", "node", node, "team-")
    api.kubectl("annotate", "node", node, "note=hello")
    api.kubectl("taint", "node", node, "gpu=yes:NoSchedule")
    api.kubectl("cordon", node)
    found = api.get(NODES.path("", node)).body
    assert ("team" in found["metadata"]["labels"], found["metadata"]["annotations"]["note"]) == (False, "hello")
    assert {"key": "gpu", "value": "yes", "effect": "NoSchedule"} in found["spec"]["taints"]
    assert "SchedulingDisabled" in api.kubectl("get", "node", node)
    api.kubectl("taint", "node", node, "gpu-")
    assert "already cordoned" in api.kubectl("cordon", node)


def test_replace_and_delete(api: Api) -> None:
    api.kubectl("create", "configmap", "a", "--from-literal=x=1")
    text = api.kubectl("get", "configmap", "a", "-o", "yaml").replace('x: "1"', 'x: "2"')
    assert "replaced" in api.kubectl("replace", "-f", "-", given=text)
    assert "the object has been modified" in api.kubectl("replace", "-f", "-", given=text, fails=True)
    assert "deleted" in api.kubectl("delete", "configmap", "a")
    assert 'configmaps "a" not found' in api.kubectl("delete", "configmap", "a", fails=True)
