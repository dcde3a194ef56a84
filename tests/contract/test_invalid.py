"""What is invalid in the fields that an operator fills in from its users' settings."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.kube.resources import CONFIG_MAPS, CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, RUNTIME_CLASSES
from tests.contract.api import Api, Object
from tests.contract.objects import config_map, pod, workload

MOST_ANNOTATIONS = 256 * 1024
EXISTS = {"key": "a", "operator": "Exists"}


def container(name: str = "m", **more: Any) -> Object:
    return {"name": name, "image": "registry.example/app:1", **more}


def gpus(**resources: Any) -> Object:
    return {"containers": [container(resources=resources)]}


def affinity(*terms: Object) -> Object:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}}


VOLUME = {"name": "v", "emptyDir": {}}
MOUNT = {"name": "v", "mountPath": "/a"}
BROKEN: list[tuple[Object, str, str]] = [
    ({"containers": [container(env=[{"name": ""}])]}, "FieldValueRequired", "containers[0].env[0].name"),
    ({"containers": [container("M")]}, "FieldValueInvalid", "containers[0].name"),
    (gpus(limits={"cpu": "1"}, requests={"cpu": "2"}), "FieldValueInvalid", "containers[0].resources.requests"),
    (gpus(limits={"nvidia.com/gpu": "2"}, requests={"nvidia.com/gpu": "1"}), "FieldValueInvalid",
     "containers[0].resources.requests"),
    (gpus(requests={"nvidia.com/gpu": "1"}), "FieldValueRequired", "containers[0].resources.limits"),
    (gpus(limits={"nvidia.com/gpu": "500m"}), "FieldValueInvalid", "containers[0].resources.limits[nvidia.com/gpu]"),
    ({"volumes": [VOLUME, VOLUME]}, "FieldValueDuplicate", "volumes[1].name"),
    ({"volumes": [{**VOLUME, "hostPath": {"path": "/"}}]}, "FieldValueForbidden", "volumes[0].hostPath"),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]}, "FieldValueInvalid", "volumes[0].hostPath.path"),
    ({"volumes": [VOLUME], "containers": [container(volumeMounts=[MOUNT, MOUNT])]}, "FieldValueInvalid",
     "containers[0].volumeMounts[1].mountPath"),
    ({"volumes": [VOLUME], "containers": [container(volumeMounts=[{**MOUNT, "mountPropagation": "Bidirectional"}])]},
     "FieldValueForbidden", "containers[0].volumeMounts.mountPropagation"),
    ({"containers": [container(securityContext={"privileged": True, "allowPrivilegeEscalation": False})]},
     "FieldValueInvalid", "containers[0].securityContext"),
    ({"tolerations": [{**EXISTS, "value": "b"}]}, "FieldValueInvalid", "tolerations[0].operator"),
    ({"tolerations": [{"value": "b"}]}, "FieldValueInvalid", "tolerations[0].operator"),
    ({"tolerations": [{**EXISTS, "effect": "NoSchedule", "tolerationSeconds": 3}]}, "FieldValueInvalid",
     "tolerations[0].effect"),
    ({"nodeSelector": {"a": "b c"}}, "FieldValueInvalid", "nodeSelector"),
    (affinity(), "FieldValueRequired",
     "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"),
    (affinity({"matchExpressions": [{"key": "a", "operator": "In"}]}), "FieldValueRequired",
     "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values"),
    (affinity({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}), "FieldValueForbidden",
     "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values"),
    ({"containers": [container(startupProbe={})]}, "FieldValueRequired", "containers[0].startupProbe"),
    ({"containers": [container(livenessProbe={"exec": {"command": ["a"]}, "successThreshold": 2})]}, "FieldValueInvalid",
     "containers[0].livenessProbe.successThreshold"),
    ({"hostNetwork": True, "containers": [container(ports=[{"containerPort": 80, "hostPort": 81}])]}, "FieldValueInvalid",
     "containers[0].ports[0].hostPort"),
]


@pytest.mark.parametrize(("spec", "reason", "field"), BROKEN)
def test_a_template_is_validated_as_a_pod_is(api: Api, spec: Object, reason: str, field: str) -> None:
    refused = api.post(PODS.path(api.ns), pod("a", **spec))
    assert refused.status == 422
    assert (reason, f"spec.{field}") in refused.causes
    refused = api.post(DAEMON_SETS.path(api.ns), workload("DaemonSet", "a", template=spec))
    assert refused.status == 422
    assert (reason, f"spec.template.spec.{field}") in refused.causes


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_the_labels_and_annotations_of_a_template_are_validated(api: Api, field: str) -> None:
    body = workload("DaemonSet", "a")
    body["spec"]["template"]["metadata"].setdefault(field, {})["a b"] = "x"
    assert ("FieldValueInvalid", f"spec.template.{field}") in api.post(DAEMON_SETS.path(api.ns), body).causes


def test_a_daemon_set_has_to_be_able_to_replace_a_pod(api: Api) -> None:
    body = workload("DaemonSet", "a", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}})
    refused = api.post(DAEMON_SETS.path(api.ns), body)
    assert refused.causes == {("FieldValueRequired", "spec.updateStrategy.rollingUpdate.maxUnavailable")}


@pytest.mark.since("1.32")
def test_annotations_have_a_limit_together(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a"))
    half = MOST_ANNOTATIONS // 2
    assert api.merge(at, {"metadata": {"annotations": {"a": "x" * (half - 1), "b": "x" * (half - 1)}}}).status == 200
    refused = api.merge(at, {"metadata": {"annotations": {"c": ""}}})
    assert (refused.status, refused.causes) == (422, {("FieldValueTooLong", "metadata.annotations")})
    assert refused.message.endswith("Too long: may not be more than 262144 bytes")


def test_keys_of_annotations_may_have_a_prefix_in_capitals_and_those_of_labels_not(api: Api) -> None:
    assert api.post(CONFIG_MAPS.path(api.ns), {"metadata": {"name": "a", "annotations": {"A/b": "x"}}}).status == 201
    assert api.post(CONFIG_MAPS.path(api.ns), {"metadata": {"name": "b", "labels": {"A/b": "x"}}}).status == 422


def test_owners_and_finalizers_are_validated(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1", "controller": True}
    path = CONFIG_MAPS.path(api.ns)
    no_uid = api.post(path, {"metadata": {"name": "a", "ownerReferences": [{**owner, "uid": ""}]}})
    assert no_uid.causes == {("FieldValueInvalid", "metadata.ownerReferences.uid")}
    two = api.post(path, {"metadata": {"name": "a", "ownerReferences": [owner, {**owner, "uid": "2", "name": "b"}]}})
    assert two.causes == {("FieldValueInvalid", "metadata.ownerReferences")}
    bare = api.post(path, {"metadata": {"name": "a", "finalizers": ["mine"]}})
    assert bare.causes == {("FieldValueInvalid", "metadata.finalizers[0]")}


def test_taints_have_an_effect_and_are_unique(api: Api) -> None:
    node = NODES.path("", api.node())
    bad = api.merge(node, {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}})
    assert bad.causes == {("FieldValueNotSupported", "metadata.taints[0].effect")}
    twice = api.merge(node, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"},
                                                 {"key": "a", "value": "x", "effect": "NoSchedule"}]}})
    assert twice.causes == {("FieldValueDuplicate", "metadata.taints[1]")}


def test_a_machine_keeps_the_identity_that_its_provider_gave_it(api: Api) -> None:
    node = NODES.path("", api.node())
    assert api.merge(node, {"spec": {"providerID": "cloud://a"}}).status == 200
    assert api.merge(node, {"spec": {"providerID": "cloud://b"}}).causes == {("FieldValueForbidden", "spec.providerID")}


@pytest.mark.since("1.32")
def test_what_a_revision_holds_stays(api: Api) -> None:
    path = CONTROLLER_REVISIONS.path(api.ns)
    api.made(path, {"metadata": {"name": "one"}, "revision": 1, "data": {"a": "b"}})
    assert api.merge(f"{path}/one", {"data": {"a": "c"}}).causes == {("FieldValueInvalid", "data")}
    assert api.merge(f"{path}/one", {"data": None}).causes == {("FieldValueInvalid", "data")}
    found = api.get(f"{path}/one").body
    assert api.put(f"{path}/one", {**found, "revision": 2}).status == 200


def test_what_is_immutable_stays(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    api.made(path, {**config_map("fixed"), "immutable": True})
    assert api.merge(f"{path}/fixed", {"data": {"a": "b"}}).causes == {("FieldValueForbidden", "data")}
    assert api.merge(f"{path}/fixed", {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert api.post(path, config_map("keys", **{"a b": "x"})).causes == {("FieldValueInvalid", "data[a b]")}
    api.cluster_wide(RUNTIME_CLASSES.path(), {"metadata": {"name": f"{api.ns}-class"}, "handler": "a"})
    changed = api.merge(f"{RUNTIME_CLASSES.path()}/{api.ns}-class", {"handler": "b"})
    assert changed.causes == {("FieldValueInvalid", "handler")}
    assert api.post(RUNTIME_CLASSES.path(), {"metadata": {"name": f"{api.ns}-none"}, "handler": ""}).status == 422
