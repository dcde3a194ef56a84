"""What `gpuward check` says of a cluster: facts in, findings out."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.crd.generate import all_crds
from gpuward.model.views import NodeView
from gpuward.report.checks import CHECKS, Inspected, Level, findings
from gpuward.report.checks.facts import Named, OtherOperator, Policy, Right, Rights, Unseen
from gpuward.report.checks.install import difference

NFD = {names.NFD_GPU_LABELS[0]: "true", names.NFD_OS_ID: "ubuntu", names.NFD_OS_VERSION: "22.04", names.NFD_KERNEL: "5.15"}
ENFORCE = "pod-security.kubernetes.io/enforce"
RUNS = OtherOperator("gpu-operator", "operator a renewed its Lease 2s ago", True)
HIDDEN = Unseen("secrets are forbidden")


def crds() -> dict[str, Any]:
    """Return the CRDs as an API server that serves them has them."""
    return {crd["metadata"]["name"]: {**crd, "status": {"conditions": [{"type": "Established", "status": "True"}]}}
            for crd in copy.deepcopy(all_crds())}


def place(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "gpu-operator", "labels": labels}}


def node(name: str, runtime: str = "containerd", labels: dict[str, str] | None = None) -> NodeView:
    return NodeView(name, labels=NFD if labels is None else labels, runtime=runtime)


def deployment(namespace: str, image: str = "registry.example/gpuward:1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gpu-operator", "namespace": namespace},
            "spec": {"template": {"spec": {"containers": [{"image": image}]}}, **spec}}


def waiting_pod(namespace: str = "gpu-operator", reason: str = "ImagePullBackOff", app: str = "gpu-operator") -> dict[str, Any]:
    waiting = {"reason": reason, "message": "not found"}
    return {"metadata": {"name": "gpu-operator-1-a", "namespace": namespace, "labels": {"app": app}},
            "spec": {"containers": [{"name": "operator", "image": "registry.example/gpuward:1"}]},
            "status": {"containerStatuses": [{"name": "operator", "state": {"waiting": waiting}}]}}


def hook(name: str, group: str, resource: str, *, operations: tuple[str, ...] = ("UPDATE",), **more: Any) -> dict[str, Any]:
    rule = {"apiGroups": [group], "resources": [resource], "operations": [*operations]}
    return {"metadata": {"name": "conf"}, "webhooks": [{"name": name, "rules": [rule], **more}]}


WELL = Inspected(
    namespace="gpu-operator", version="v1.33.1-eks-1", ahead=0.2, wanted_crds=tuple(all_crds()), crds=crds(),
    place=place(**{ENFORCE: "privileged"}), rights=Rights("ServiceAccount gpu-operator", True, 154), operators=(RUNS,),
    deployments=(deployment("gpu-operator"),), runtime_classes=({"metadata": {"name": "nvidia"}, "handler": "nvidia"},),
    nodes=(node("gpu-1"), node("cpu-1", labels={names.NFD_OS_ID: "ubuntu"})), policy=Policy("cluster-policy"),
    named=Named(("ConfigMap a",)),
)


def said(**changes: Any) -> list[tuple[str, str, str, str]]:
    """Return what is said of a cluster that is well but for some facts, without what is ok."""
    found = findings(msgspec.structs.replace(WELL, **changes))
    return [(one.check, str(one.level), one.found, one.fix) for one in found if one.level is not Level.OK]


def test_a_cluster_that_is_well() -> None:
    assert said() == []
    assert [(one.check, one.found) for one in findings(WELL)] == [
        ("kubernetes", "v1.33.1-eks-1"), ("clock", "this machine's agrees with the API server's"),
        ("crds", "clusterpolicies.nvidia.com v1"), ("crds", "nvidiadrivers.nvidia.com v1alpha1"),
        ("crds", "rolloutpolicies.gpuward.io v1alpha1"), ("namespace", "gpu-operator lets privileged pods run"),
        ("rights", "ServiceAccount gpu-operator has all 154"), ("webhooks", "none sees what gpuward writes"),
        ("operators", RUNS.message), ("runtime-classes", "nvidia"), ("discovery", "1 of 2 nodes have GPUs"),
        ("runtime", "containerd on 1"), ("policy", "ClusterPolicy cluster-policy can be followed"),
        ("references", "ConfigMap a is there"),
    ]


@pytest.mark.parametrize(("changes", "check", "level", "found", "fix"), [
    ({"version": "v1.28.9"}, "kubernetes", "fail", "v1.28.9 is older than 1.29, the oldest that gpuward supports",
         "upgrade the cluster"),
    ({"version": "sometime"}, "kubernetes", "warn", "the version 'sometime' cannot be read", ""),
    ({"ahead": 61.0}, "clock", "warn", "this machine's clock is 61 s ahead of the API server's", "NTP"),
    ({"ahead": -9.0}, "clock", "warn", "this machine's clock is 9 s behind the API server's", "NTP"),
    ({"ahead": None}, "clock", "warn", "the API server does not tell its time", ""),
    ({"place": None}, "namespace", "warn", "there is no namespace gpu-operator", "kubectl apply"),
    ({"place": place()}, "namespace", "warn", f"gpu-operator has no label {ENFORCE}: the API server's default counts",
     "kubectl label"),
    ({"place": place(**{ENFORCE: "baseline"})}, "namespace", "fail",
     "gpu-operator enforces Pod Security baseline: no driver pod can run",
     "kubectl label namespace gpu-operator pod-security.kubernetes.io/enforce=privileged --overwrite"),
    ({"place": HIDDEN}, "namespace", "warn", "not known: secrets are forbidden", "more rights"),
    ({"rights": Rights("ServiceAccount x", True, 9, (Right("", "nodes", "patch"), Right("apps", "daemonsets", "get", "a")))},
     "rights", "fail", "ServiceAccount x lacks 2 of 9: patch nodes, get daemonsets.apps a",
     "kubectl apply -f deploy/operator.yaml"),
    ({"rights": Rights("your own user", False, 9, tuple(Right("", "pods", str(n)) for n in range(6)))}, "rights", "warn",
     "your own user lacks 6 of 9: 0 pods, 1 pods, 2 pods, 3 pods and 2 more", "you need them to run gpuward as yourself"),
    ({"webhooks": (hook("a.b", "", "nodes"),)}, "webhooks", "warn",
     "webhook a.b of conf sees changes of nodes (failurePolicy Fail)", "nothing passes without it"),
    ({"webhooks": (hook("a.b", "*", "*", failurePolicy="Ignore"),)}, "webhooks", "warn",
     "webhook a.b of conf sees changes of nodes, daemonsets, pods (failurePolicy Ignore)", "gpuward's changes pass"),
    ({"webhooks": (hook("a.b", "", "pods/*", operations=("CREATE",)),)}, "webhooks", "warn",
     "webhook a.b of conf sees changes of pods/eviction (failurePolicy Fail)", ""),
    ({"operators": (OtherOperator("x", "no operator runs: gone", False),)}, "operators", "warn", "no operator runs",
     "kubectl get pods"),
    ({"operators": (OtherOperator("gpu-operator", "no operator runs: b left", False),)}, "operators", "warn",
     "no operator runs: b left", "kubectl logs -n gpu-operator deployment/gpu-operator"),
    ({"operators": (), "deployments": ()}, "operators", "warn", "no operator runs", "kubectl apply -f deploy/operator.yaml"),
    ({"operators": (OtherOperator("nv", "operator b renewed", True),)}, "operators", "warn",
     "operator b renewed, in namespace nv and not in gpu-operator", "add -n nv"),
    ({"operators": (RUNS, OtherOperator("nv", "operator b renewed", True))}, "operators", "fail",
     f"{RUNS.message}; operator b renewed", "keep one"),
    ({"deployments": (deployment("a"), deployment("b"))}, "operators", "fail",
     "Deployments of GPU operators: a/gpu-operator, b/gpu-operator", "keep one"),
    ({"deployments": (deployment("nv", "nvcr.io/nvidia/gpu-operator:v26.7.0"),)}, "operators", "warn",
     "Deployment nv/gpu-operator is NVIDIA's operator (nvcr.io/nvidia/gpu-operator:v26.7.0): gpuward waits while it runs",
     "kubectl scale deployment gpu-operator -n nv --replicas=0"),
    ({"operator_pods": (waiting_pod(reason="ErrImagePull"), waiting_pod())}, "operators", "warn",
     "pod gpu-operator-1-a of Deployment gpu-operator/gpu-operator waits for its image registry.example/gpuward:1: ErrImagePull",
     "kubectl describe pod -n gpu-operator gpu-operator-1-a"),
    ({"runtime_classes": ({"metadata": {"name": "nvidia"}, "handler": "runc"},)}, "runtime-classes", "warn",
     "RuntimeClass nvidia has handler runc, not nvidia", "kubectl delete runtimeclass nvidia"),
    ({"nodes": (node("a", labels={}),)}, "discovery", "fail", "no node has labels of node feature discovery",
     "kubectl label node"),
    ({"nodes": (node("a", labels={names.NFD_OS_ID: "x"}),)}, "discovery", "warn",
     "no NVIDIA GPU on any of 1 nodes with labels of node feature discovery", ""),
    ({"nodes": (node("a", labels={names.NFD_GPU_LABELS[0]: "true"}),)}, "discovery", "warn",
     "a lacks labels of its operating system or kernel: no other driver image can be chosen",
     "kubectl label node a feature.node.kubernetes.io/system-os_release.ID=ID "),
    ({"nodes": (node("a", labels={**NFD, names.NFD_OS_VERSION: ""}),)}, "discovery", "warn",
     "a lacks labels of its operating system or kernel", "feature.node.kubernetes.io/system-os_release.VERSION_ID=VERSION_ID"),
    ({"nodes": (node("a"), node("b", "frakti"))}, "runtime", "fail",
     "containerd on 1, frakti on 1: the container toolkit cannot set up frakti", "use one of docker, containerd, cri-o"),
    ({"nodes": (node("a"), node("b", "cri-o"))}, "runtime", "warn", "containerd on 1, cri-o on 1: one container toolkit",
     "the same"),
    ({"policy": Policy()}, "policy", "warn", "there is no ClusterPolicy: nothing is managed", "examples/clusterpolicy.yaml"),
    ({"policy": Policy("a", ("ClusterPolicy a: spec.driver.version: 1",))}, "policy", "fail",
     "ClusterPolicy a: spec.driver.version: 1", "kubectl edit clusterpolicy a"),
    ({"policy": Policy("a", (), ("b",))}, "policy", "warn", "ClusterPolicy b is ignored: a is older",
     "kubectl delete clusterpolicy b"),
    ({"policy": Policy("a", unfollowed=("b",))}, "policy", "warn",
     "NVIDIADriver b is not followed: driver.useNvidiaDriverCRD of ClusterPolicy a is false", "kubectl delete nvidiadriver b"),
    ({"named": Named(("Secret s",), ("Secret s",))}, "references", "fail",
     "Secret s is missing in namespace gpu-operator, and a policy names it", "make it"),
    ({"named": Named(("Secret s",), (), ("Secret s: forbidden",))}, "references", "warn", "not known: Secret s: forbidden", ""),
])
def test_one_thing_that_is_wrong_is_one_line(changes: dict[str, Any], check: str, level: str, found: str, fix: str) -> None:
    (one,) = said(**changes)
    assert one[:2] == (check, level)
    assert one[2].startswith(found)
    assert fix in one[3]


def test_where_no_operator_runs_for_want_of_its_image_it_fails() -> None:
    pods = (waiting_pod(), waiting_pod("elsewhere"), waiting_pod(app="others"))
    idle, told = said(operators=(), operator_pods=pods)
    assert idle[2] == "no operator runs"
    assert told[:3] == ("operators", "fail", "pod gpu-operator-1-a of Deployment gpu-operator/gpu-operator waits for its image "
                        "registry.example/gpuward:1: ImagePullBackOff (not found)")
    assert "kubectl describe pod -n gpu-operator gpu-operator-1-a" in told[3]


def test_a_hook_that_waits_for_its_image_is_named_for_whoever_waits_for_helm() -> None:
    pod = waiting_pod()
    pod["metadata"]["labels"] = {names.JOB_NAME: "gpu-operator-upgrade-crd"}
    (told,) = said(hook_pods=(pod, pod))
    assert told[:3] == ("operators", "fail", "pod gpu-operator-1-a of helm's hook gpu-operator-upgrade-crd waits for its image "
                        "registry.example/gpuward:1: ImagePullBackOff (not found)")
    assert "kubectl delete job -n gpu-operator gpu-operator-upgrade-crd" in told[3]


@pytest.mark.parametrize("changes", [
    {"deployments": (deployment("a"), deployment("b", replicas=0))},
    {"ahead": 3000.0, "version": "v1.36.3+kubesandbox"},
    {"deployments": (deployment("nv", "nvcr.io/nvidia/gpu-operator:v26.7.0", replicas=0),)},
    {"operators": (), "policy": Policy()},
    {"webhooks": (hook("a", "apps", "deployments"), hook("a", "", "nodes", operations=("CONNECT",)), hook("a", "apps", "nodes"))},
    {"webhooks": (hook("a", "", "pods", namespaceSelector={"matchLabels": {"team": "x"}}),)},
    {"webhooks": (hook("a", "apps", "*", namespaceSelector={"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gpu-operator"]}]}),)},
    {"named": Named()},
    {"runtime_classes": ()},
])
def test_what_is_no_trouble(changes: dict[str, Any]) -> None:
    assert [one for one in said(**changes) if one[0] != "policy"] == []


@pytest.mark.parametrize("fact", ["place", "rights", "webhooks", "operators", "deployments", "operator_pods", "runtime_classes",
                                  "nodes", "policy", "named"])
def test_what_may_not_be_seen_is_said_and_is_no_failure(fact: str) -> None:
    assert said(**{fact: HIDDEN}) == [
        (said(**{fact: HIDDEN})[0][0], "warn", "not known: secrets are forbidden", "look with more rights")]


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the CRDs with one thing changed in that of NVIDIADrivers."""
    every = crds()
    at = every["nvidiadrivers.nvidia.com"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return every


SCHEMA = ("spec", "versions", 0, "schema", "openAPIV3Schema")


@pytest.mark.parametrize(("found", "level", "told"), [
    ({name: crd for name, crd in crds().items() if name[0] != "c"}, "fail", "clusterpolicies.nvidia.com is not installed"),
    ({name: crd for name, crd in crds().items() if name[0] != "n"}, "warn",
     "nvidiadrivers.nvidia.com is not installed: drivers are the ClusterPolicy's"),
    (crds() | {"rolloutpolicies.gpuward.io": HIDDEN}, "warn", "not known: secrets are forbidden"),
    (changed(("status", "conditions"), [{"type": "NamesAccepted", "status": "False", "message": "taken"}]), "fail",
     "nvidiadrivers.nvidia.com is not served: taken"),
    (changed(("status", "storedVersions"), ["v1alpha0"]), "warn",
     "nvidiadrivers.nvidia.com has objects stored as v1alpha0, a version that this gpuward does not know"),
    (changed(("spec", "versions", 0, "served"), False), "fail", "nvidiadrivers.nvidia.com does not serve version v1alpha1"),
    (changed((*SCHEMA, "properties", "spec", "properties", "image", "type"), "integer"), "warn",
     "nvidiadrivers.nvidia.com is of another version: spec.image.type differs"),
])
def test_crds_are_compared_with_those_of_this_gpuward(found: dict[str, Any], level: str, told: str) -> None:
    assert [one[1:3] for one in said(crds=found)] == [(level, told)]


def test_descriptions_make_no_other_schema_but_a_field_of_that_name_does() -> None:
    ours = {"description": "a", "properties": {"description": {"type": "string"}}}
    assert difference(ours, {**ours, "description": "b"}) == ""
    assert difference(ours, {"properties": ours["properties"]}) == ""
    assert difference(ours, {"properties": {"description": {"type": "integer"}}}) == "description.type"
    assert difference(ours, {"properties": {}}) == "description"


def test_every_check_says_something_of_every_cluster() -> None:
    assert len({finding.check for finding in findings(WELL)}) == len(CHECKS)


@pytest.mark.parametrize(("found", "command"), [
    ({name: crd for name, crd in crds().items() if name[0] != "c"}, "gpuward crds | kubectl apply --server-side -f -"),
    (changed(("spec", "versions", 0, "served"), False), "gpuward crds | kubectl apply --server-side --force-conflicts -f -"),
])
def test_only_crds_that_others_have_applied_are_taken_from_them(found: dict[str, Any], command: str) -> None:
    assert [one[3] for one in said(crds=found)] == [command]


def test_a_mistyped_namespace_is_not_made_by_manifests_that_make_another_one() -> None:
    (fix,) = [fix for check, _, _, fix in said(place=None, namespace="nope") if check == "namespace"]
    assert fix == "name the operator's namespace with -n, or make this one: kubectl create namespace nope"
