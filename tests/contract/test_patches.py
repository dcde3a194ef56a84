"""JSON, merge and strategic merge patches, where they are not alike."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS
from tests.contract.api import Api
from tests.contract.objects import config_map, pod, workload


@pytest.mark.parametrize(("path", "value", "holds"), [
    ("/data/x", "1", True), ("/data/x", "2", False), ("/data/absent", None, True), ("/data/absent", "1", False),
    ("/metadata/labels", None, True), ("/metadata/labels/a", None, False), ("/metadata/labels/a", "1", False),
    ("/data/x", None, False), ("/metadata/annotations/example.com~1note", "n", True),
    ("/metadata/annotations", {"example.com/note": "n"}, True), ("/nothing/at/all", None, False), ("/binaryData", None, True),
])
def test_json_patch_tests(api: Api, path: str, value: Any, holds: bool) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    body = config_map("a", x="1")
    body["metadata"]["annotations"] = {"example.com/note": "n"}
    api.made(CONFIG_MAPS.path(api.ns), body)
    reply = api.patch_json(at, {"op": "test", "path": path, "value": value}, {"op": "add", "path": "/data/done", "value": "yes"})
    assert reply.status == (200 if holds else 422), reply.body
    assert ("done" in api.get(at).body["data"]) == holds
    if not holds:
        assert (reply.reason, reply.message, reply.causes) == (
            "Invalid", "the server rejected our request due to an error in our request", set())


@pytest.mark.since("1.36")
def test_a_json_patch_test_without_value_means_null(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    assert api.patch_json(at, {"op": "test", "path": "/data/absent"}).status == 200
    assert api.patch_json(at, {"op": "test", "path": "/data/x"}).status == 422


@pytest.mark.parametrize(("operation", "status", "data"), [
    ({"op": "add", "path": "/data/y", "value": "2"}, 200, {"x": "1", "y": "2"}),
    ({"op": "add", "path": "/metadata/labels/a", "value": "2"}, 422, {"x": "1"}),
    ({"op": "replace", "path": "/data/y", "value": "2"}, 200, {"x": "1", "y": "2"}),
    ({"op": "replace", "path": "/metadata/labels/a", "value": "2"}, 422, {"x": "1"}),
    ({"op": "replace", "path": "/data/x", "value": "2"}, 200, {"x": "2"}),
    ({"op": "remove", "path": "/data/y"}, 422, {"x": "1"}),
    ({"op": "remove", "path": "/data/x"}, 200, None),
    ({"op": "move", "from": "/data/x", "path": "/data/y"}, 200, {"y": "1"}),
    ({"op": "copy", "from": "/data/x", "path": "/data/y"}, 200, {"x": "1", "y": "1"}),
    ({"op": "copy", "from": "/data/z", "path": "/data/y"}, 200, {"x": "1", "y": ""}),
    ({"op": "move", "from": "/data/z", "path": "/data/y"}, 422, {"x": "1"}),
    ({"op": "eat", "path": "/data/x"}, 422, {"x": "1"}),
    ({"path": "/data/x"}, 422, {"x": "1"}),
    ({"op": "add", "path": "/data/y", "value": 2}, 422, {"x": "1"}),
])
def test_json_patch_operations(api: Api, operation: dict[str, Any], status: int, data: Any) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    assert api.patch_json(at, operation).status == status
    assert api.get(at).body.get("data") == data


def test_json_patches_of_lists(api: Api) -> None:
    at = NODES.path("", api.node(taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]))
    mine = {"key": "c", "effect": "NoSchedule"}
    added = api.patch_json(at, {"op": "add", "path": "/spec/taints/0", "value": mine})
    assert [one["key"] for one in added.body["spec"]["taints"]] == ["c", "a", "b"]
    last = api.patch_json(at, {"op": "test", "path": "/spec/taints/0/key", "value": "c"},
                          {"op": "remove", "path": "/spec/taints/0"},
                          {"op": "add", "path": "/spec/taints/-", "value": mine})
    assert [one["key"] for one in last.body["spec"]["taints"]] == ["a", "b", "c"]
    assert api.patch_json(at, {"op": "remove", "path": "/spec/taints/7"}).status == 422


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"nonsense"])
def test_what_is_no_json_patch(api: Api, body: bytes) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    reply = api.server.request("PATCH", at, body, content_type="application/json-patch+json")
    assert (reply.status, reply.reason) == (400, "BadRequest"), reply.body


def test_a_merge_patch_replaces_lists_and_removes_by_null(api: Api) -> None:
    at = NODES.path("", api.node(taints=[{"key": "a", "effect": "NoSchedule"}], labels={"x": "1", "y": "2"}))
    changed = api.merge(at, {"metadata": {"labels": {"x": None, "z": "3"}, "annotations": {"never": None}},
                             "spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}).body
    assert {"x", "y", "z"} & changed["metadata"]["labels"].keys() == {"y", "z"}
    assert "never" not in changed["metadata"].get("annotations", {})
    assert [one["key"] for one in changed["spec"]["taints"]] == ["b"]


def test_a_strategic_patch_merges_conditions_but_replaces_taints(api: Api) -> None:
    name = api.node(taints=[{"key": "a", "effect": "NoSchedule"}])
    at = NODES.path("", name)
    changed = api.strategic(f"{at}/status", {"status": {"conditions": [{"type": "Mine", "status": "True"}]}}).body
    assert {"Ready", "Mine"} <= {one["type"] for one in changed["status"]["conditions"]}
    again = api.strategic(f"{at}/status", {"status": {"conditions": [{"type": "Mine", "reason": "Because"}]}}).body
    mine = next(one for one in again["status"]["conditions"] if one["type"] == "Mine")
    assert (mine["status"], mine["reason"]) == ("True", "Because")
    gone = api.strategic(f"{at}/status", {"status": {"conditions": [{"type": "Mine", "$patch": "delete"}]}}).body
    assert "Mine" not in {one["type"] for one in gone["status"]["conditions"]}
    tainted = api.strategic(at, {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}).body
    assert [one["key"] for one in tainted["spec"]["taints"]] == ["b"]
    assert "taints" not in api.strategic(at, {"spec": {"taints": None}}).body["spec"]


def test_a_strategic_patch_merges_containers_by_name(api: Api) -> None:
    at = f"{DEPLOYMENTS.path(api.ns)}/w"
    api.made(DEPLOYMENTS.path(api.ns), workload("Deployment", "w", replicas=0))
    changed = api.strategic(at, {"spec": {"template": {"spec": {"containers": [
        {"name": "main", "env": [{"name": "A", "value": "1"}]}, {"name": "side", "image": "side:1"}]}}}}).body
    found = {one["name"]: one for one in changed["spec"]["template"]["spec"]["containers"]}
    assert set(found) == {"main", "side"}
    assert (found["main"]["image"], found["main"]["env"]) == ("registry.example/app:1", [{"name": "A", "value": "1"}])
    one = api.strategic(at, {"spec": {"template": {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}}}).body
    assert [each["name"] for each in one["spec"]["template"]["spec"]["containers"]] == ["side"]
    assert one["metadata"]["generation"] == 3


def test_finalizers_merge_as_a_set_in_a_strategic_patch(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), {"metadata": {"name": "a", "finalizers": ["example.com/one"]}})
    assert api.strategic(at, {"metadata": {"finalizers": ["example.com/two"]}}).body["metadata"]["finalizers"] == [
        "example.com/two", "example.com/one"]
    assert api.strategic(at, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}}).body["metadata"][
        "finalizers"] == ["example.com/two"]
    assert "finalizers" not in api.merge(at, {"metadata": {"finalizers": []}}).body["metadata"]


def test_an_unknown_kind_of_patch_is_refused(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    reply = api.server.request("PATCH", at, {}, content_type="application/json")
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")


def test_patching_what_is_not_there(api: Api) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/nobody"
    for reply in (api.merge(at, {}), api.patch_json(at, {"op": "test", "path": "/data", "value": None}), api.strategic(at, {})):
        assert (reply.status, reply.reason) == (404, "NotFound")


def test_the_labels_of_a_pod_change_and_its_node_does_not(api: Api) -> None:
    at = f"{PODS.path(api.ns)}/p"
    api.made(PODS.path(api.ns), pod("p", node="nowhere", labels={"a": "1"}))
    assert api.merge(at, {"metadata": {"labels": {"a": "2"}}}).body["metadata"]["labels"] == {"a": "2"}
    refused = api.merge(at, {"spec": {"nodeName": "elsewhere"}})
    assert (refused.status, refused.causes) == (422, {("FieldValueForbidden", "spec")})
    assert "pod updates may not change fields other than" in refused.message
    assert api.strategic(at, {"spec": {"containers": [{"name": "main", "image": "new:2"}]}}).status == 200


@pytest.mark.since("1.36")
def test_only_a_binding_gives_a_pod_its_node(api: Api) -> None:
    at = f"{PODS.path(api.ns)}/p"
    made = api.made(PODS.path(api.ns), pod("p", nodeSelector={"nobody": "has-it"}))
    refused = api.merge(at, {"spec": {"nodeName": "nowhere"}})
    assert (refused.status, refused.causes) == (422, {("FieldValueForbidden", "spec")})
    bound = api.post(f"{at}/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "nowhere"}})
    assert (bound.status, bound.body["status"]) == (201, "Success")
    found = api.get(at).body
    assert (found["spec"]["nodeName"], found["metadata"]["generation"]) == ("nowhere", made["metadata"]["generation"])
    again = api.post(f"{at}/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "elsewhere"}})
    assert (again.status, again.reason) == (409, "Conflict")


@pytest.mark.parametrize(("change", "said"), [
    ({"data": {"y": 2}}, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
    ({"data": "text"}, "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string"),
    ({"unknown": {"y": "2"}}, 'strict decoding error: unknown field "unknown"'),
])
def test_a_patch_that_leaves_no_object_is_invalid_with_a_cause(api: Api, change: dict[str, Any], said: str) -> None:
    at = f"{CONFIG_MAPS.path(api.ns)}/a"
    api.made(CONFIG_MAPS.path(api.ns), config_map("a", x="1"))
    refused = api.merge(at, change, fieldValidation="Strict")
    assert (refused.status, refused.reason, refused.causes) == (422, "Invalid", {("FieldValueInvalid", "patch")})
    assert refused.message.endswith(said)


def test_a_strategic_patch_of_a_nodes_status_merges_conditions_by_type_at_a_version(api: Api) -> None:
    name = api.node()
    at = NODES.path("", name)
    told = {"type": "Drained", "status": "True", "reason": "DrainCompleted", "message": "gpuward: driver upgrade",
            "lastHeartbeatTime": "2026-01-02T03:04:05.678Z", "lastTransitionTime": "2026-01-02T03:04:05.678Z"}
    before = api.get(at).body

    def change(*conditions: dict[str, Any], **meta: str) -> Any:
        while True:
            known = {"uid": before["metadata"]["uid"], "resourceVersion": api.get(at).body["metadata"]["resourceVersion"]}
            told = api.strategic(f"{at}/status", {"metadata": known | meta, "status": {"conditions": list(conditions)}})
            if told.status != 409 or meta:  # a kubelet may have reported between the two
                return told

    assert change(told, resourceVersion="1").status == 409
    wrong = change(told, uid="another")
    assert (wrong.status, {field for _, field in wrong.causes}) == (422, {"metadata.uid"})
    assert change(told, {"type": "Other", "status": "True"}).status == 200
    found = {one["type"]: one for one in api.get(at).body["status"]["conditions"]}
    assert found["Drained"] == told | {key: "2026-01-02T03:04:05Z" for key in told if key.endswith("Time")}
    assert change({"type": "Drained", "status": "True", "message": "m"}).body["status"]["conditions"]
    again = {one["type"]: one for one in api.get(at).body["status"]["conditions"]}
    assert again["Drained"] == found["Drained"] | {"message": "m"}, "what is not said stays"
    assert change({"$patch": "delete", "type": "Drained"}).status == 200
    left = {one["type"] for one in api.get(at).body["status"]["conditions"]}
    assert "Drained" not in left
    assert "Other" in left
