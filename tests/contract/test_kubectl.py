"""What people do with kubectl every day."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuward.crd.generate import all_crds, as_yaml
from kubesandbox.store import Event
from tests.contract.cluster import Cluster

pytestmark = pytest.mark.kubectl

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: gpu-operator}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: a, image: "a:1"}
      - {name: b, image: "b:1", env: [{name: X, value: "1"}]}
"""


def test_tables(cluster: Cluster) -> None:
    lines = cluster.kubectl("get", "nodes").splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [line.split()[:3] for line in lines[1:]] == [[name, "Ready", "<none>"] for name in ("cpu-1", "gpu-1", "gpu-2")]
    assert "Ubuntu 22.04.5 LTS" in cluster.kubectl("get", "nodes", "-o", "wide")
    pods = cluster.kubectl("get", "pods", "-A", "-o", "wide").splitlines()
    assert pods[0].split()[:7] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"]
    assert pods[1].split()[:4] == ["gpu-operator", "driver-a", "1/1", "Running"]
    assert cluster.kubectl("get", "crd").splitlines()[1].split()[0] == "clusterpolicies.nvidia.com"


def test_other_outputs_and_selectors(cluster: Cluster) -> None:
    assert json.loads(cluster.kubectl("get", "node", "gpu-1", "-o", "json"))["metadata"]["name"] == "gpu-1"
    assert yaml.safe_load(cluster.kubectl("get", "node", "gpu-1", "-o", "yaml"))["status"]["allocatable"]["memory"] == "512Gi"
    assert cluster.kubectl("get", "pods", "--field-selector", "spec.nodeName=gpu-1", "-l", "app in (web)", "-o",
                           "name") == "pod/web\n"
    assert cluster.kubectl("get", "nodes", "-l", "!nvidia.com/gpu.present", "-o", "name") == "node/cpu-1\n"
    assert "field label not supported" in cluster.kubectl("get", "pods", "--field-selector", "spec.foo=1", fails=True)
    assert cluster.kubectl("get", "pod", "nobody", fails=True) == 'Error from server (NotFound): pods "nobody" not found\n'


@pytest.mark.parametrize(("kind", "name", "told"), [
    ("node", "gpu-1", ["Name:               gpu-1", "nvidia.com/gpu:  8", "web", "Unschedulable:"]),
    ("pod", "web", ["Node:             gpu-1/", "Image:          registry/app:1", "Ready:          True"]),
])
def test_describe(cluster: Cluster, kind: str, name: str, told: list[str]) -> None:
    text = cluster.kubectl("describe", kind, name)
    assert all(piece in text for piece in told), text


def test_cordon_and_uncordon(cluster: Cluster) -> None:
    assert cluster.kubectl("cordon", "gpu-2") == "node/gpu-2 cordoned\n"
    assert "Ready,SchedulingDisabled" in cluster.kubectl("get", "node", "gpu-2")
    assert cluster.kubectl("cordon", "gpu-2") == "node/gpu-2 already cordoned\n"
    assert cluster.kubectl("uncordon", "gpu-2") == "node/gpu-2 uncordoned\n"
    assert "SchedulingDisabled" not in cluster.kubectl("get", "node", "gpu-2")


def test_label_annotate_and_patch(cluster: Cluster) -> None:
    cluster.kubectl("label", "node", "gpu-2", "team=blue")
    assert "already has a value" in cluster.kubectl("label", "node", "gpu-2", "team=red", fails=True)
    cluster.kubectl("label", "node", "gpu-2", "team-")
    cluster.kubectl("annotate", "node", "gpu-2", "note=hello world")
    cluster.kubectl("patch", "node", "gpu-2", "-p", '{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}')
    cluster.kubectl("patch", "node", "gpu-2", "--type=merge", "-p", '{"metadata":{"labels":{"zone":"a"}}}')
    node = cluster.do(lambda: cluster.store.get("nodes", None, "gpu-2"))
    assert node["metadata"]["annotations"] == {"note": "hello world"}
    assert node["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
    assert "team" not in node["metadata"]["labels"]
    assert "(no change)" in cluster.kubectl("patch", "node", "gpu-2", "--type=merge", "-p",
                                            '{"metadata":{"labels":{"zone":"a"}}}')
    assert "a valid label must be" in cluster.kubectl("label", "node", "gpu-2", "team=a b", fails=True)


@pytest.mark.parametrize("flags", [["--validate=false"], [], ["--server-side"]])
def test_apply_merges_by_key_and_repeats_without_effect(cluster: Cluster, flags: list[str]) -> None:
    cluster.kubectl("apply", *flags, "-f", "-", given=DEPLOYMENT)
    before = cluster.do(lambda: cluster.store.get("deployments.apps", "gpu-operator", "shop"))
    cluster.kubectl("apply", *flags, "-f", "-", given=DEPLOYMENT)
    assert cluster.do(lambda: cluster.store.get("deployments.apps", "gpu-operator", "shop")) is before
    cluster.kubectl("apply", *flags, "-f", "-", given=DEPLOYMENT.replace("b:1", "b:2"))
    after = cluster.do(lambda: cluster.store.get("deployments.apps", "gpu-operator", "shop"))
    assert [one["image"] for one in after["spec"]["template"]["spec"]["containers"]] == ["a:1", "b:2"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert cluster.kubectl("get", "deployment", "shop").splitlines()[1].split()[:2] == ["shop", "0/2"]
    cluster.kubectl("delete", "deployment", "shop")


def test_apply_tells_of_unknown_fields(cluster: Cluster) -> None:
    wrong = DEPLOYMENT.replace("replicas:", "replica:")
    assert 'unknown field "spec.replica"' in cluster.kubectl("apply", "-f", "-", given=wrong, fails=True)


def test_the_crds_can_be_applied_server_side(cluster: Cluster) -> None:
    told = cluster.kubectl("apply", "--server-side", "-f", "-", given=as_yaml(*all_crds()))
    assert told.count("serverside-applied") == len(list(all_crds()))
    assert "version" in cluster.kubectl("explain", "clusterpolicy.spec.driver.version")


def test_deleting(cluster: Cluster) -> None:
    cluster.do(lambda: cluster.add_pod("doomed", "gpu-2", {"app": "doomed"}))
    assert cluster.kubectl("delete", "pod", "doomed", "--wait=false") == 'pod "doomed" deleted\n'
    assert "Terminating" in cluster.kubectl("get", "pod", "doomed")
    cluster.kubectl("delete", "pod", "doomed", "--force", "--grace-period=0")
    assert cluster.do(lambda: cluster.store.find("pods", "gpu-operator", "doomed")) is None


def test_drain_goes_through_evictions(cluster: Cluster) -> None:
    def furnish() -> None:
        cluster.add_pod("guarded", "gpu-2", {"app": "guarded"})
        cluster.store.create("poddisruptionbudgets.policy", {
            "metadata": {"name": "guard", "namespace": "gpu-operator"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}})
        cluster.store.patch_status("poddisruptionbudgets.policy", "gpu-operator", "guard", lambda one: one["status"].update(
            observedGeneration=1, disruptionsAllowed=1, desiredHealthy=0, currentHealthy=1))
        cluster.store.subscribe(end, "pods")

    def end(event: Event) -> None:
        if event.type == "MODIFIED" and event.obj["metadata"].get("deletionTimestamp"):
            cluster.store.remove("pods", "gpu-operator", "guarded")

    cluster.do(furnish)
    assert "node/gpu-2 drained" in cluster.kubectl("drain", "gpu-2", "--force", "--timeout=20s")
    budget = cluster.do(lambda: cluster.store.get("poddisruptionbudgets.policy", "gpu-operator", "guard"))
    assert budget["status"]["disruptionsAllowed"] == 0
    cluster.kubectl("uncordon", "gpu-2")


@pytest.mark.parametrize(("words", "told"), [
    (["auth", "can-i", "create", "pods"], "yes"), (["api-resources", "-o", "name"], "clusterpolicies.nvidia.com"),
    (["version"], "Server Version: v1."), (["cluster-info"], "is running at"), (["get", "--raw", "/readyz"], "ok"),
    (["get", "all"], "pod/web"), (["explain", "clusterpolicy.spec"], "driver"),
])
def test_odds_and_ends(cluster: Cluster, words: list[str], told: str) -> None:
    assert told in cluster.kubectl(*words)


@pytest.mark.parametrize(("words", "path"), [
    (["configmap", "made", "--from-literal=a=b"], "{.data.a}=b"), (["namespace", "made"], "{.status.phase}=Active"),
    (["deployment", "made", "--image=app:1", "--replicas=3"], "{.spec.replicas}=3"),
    (["job", "made", "--image=app:1", "--", "sleep", "1"], "{.spec.template.spec.containers[0].command[1]}=1"),
    (["secret", "generic", "made", "--from-literal=a=b"], "{.data.a}=Yg=="),
    (["pdb", "made", "--selector=app=x", "--min-available=50%"], "{.spec.minAvailable}=50%"),
])
def test_creating_from_flags(cluster: Cluster, words: list[str], path: str) -> None:
    template, _, expected = path.partition("=")
    cluster.kubectl("create", *words)
    assert cluster.kubectl("get", words[0], "made", f"-ojsonpath={template}") == expected
    assert "already exists" in cluster.kubectl("create", *words, fails=True)
    cluster.kubectl("delete", words[0], "made", "--wait=false")
