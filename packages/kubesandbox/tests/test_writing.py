"""Writes through the API: bodies, patches, preconditions, dry runs, field validation, deletions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox_helpers.calls import CRDS, PATCHES, THING, THINGS, Caller, definition

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def caller() -> Caller:
    return Caller()


def test_create_answers_201_with_the_stored_object(caller: Caller) -> None:
    answer = caller.send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    assert answer.status == 201
    assert json.loads(answer.body)["metadata"]["uid"]
    assert caller.refused("POST", "/api/v1/nodes", {"metadata": {"name": "n"}}) == (409, "AlreadyExists",
                                                                                    'nodes "n" already exists')


@pytest.mark.parametrize(("path", "body", "status", "message"), [
    (PODS, {"apiVersion": "v2", "kind": "Pod"}, 400,
     "the API version in the data (v2) does not match the expected API version (v1)"),
    (PODS, {"kind": "Node", "apiVersion": "v1"}, 400, 'Node in version "v1" cannot be handled as a Pod'),
    (PODS, {"metadata": {"name": "p", "namespace": "other"}}, 400, "the namespace of the provided object does not match"),
    (PODS, b"{", 400, "error decoding the request body"),
    (PODS, [], 400, "cannot unmarshal array"),
    ("/api/v1/namespaces/nope/pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, 404,
     'namespaces "nope" not found'),
    ("/api/v1/pods", {"metadata": {"name": "p"}}, 405, "the server does not allow this method on the requested resource"),
    ("/api/v1/frobs", {}, 404, "the server could not find the requested resource"),
    (PODS, {"metadata": {"name": "p"}, "spec": {"containers": "x"}}, 400,
     "cannot unmarshal string into Go struct field PodSpec.spec.containers"),
])
def test_create_refuses(caller: Caller, path: str, body: Any, status: int, message: str) -> None:
    found = caller.refused("POST", path, body)
    assert found[0] == status
    assert message in found[2]


@pytest.mark.parametrize(("mode", "status", "warning"), [
    ("Ignore", 201, None), ("Warn", 201, '299 - "unknown field \\"spec.foo\\""'),
    (None, 201, '299 - "unknown field \\"spec.foo\\""'),
    ("Strict", 400, None),
])
def test_field_validation(caller: Caller, mode: str | None, status: int, warning: str | None) -> None:
    answer = caller.send("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"foo": 1}}, fieldValidation=mode)
    assert answer.status == status
    assert answer.headers.get("Warning") == warning
    if status == 400:
        assert 'strict decoding error: unknown field "spec.foo"' in json.loads(answer.body)["message"]
    else:
        assert json.loads(answer.body)["spec"] == {}


def test_yaml_is_read_like_json(caller: Caller) -> None:
    made = caller.ok("POST", "/api/v1/nodes", b"metadata:\n  name: n\n  annotations: {at: 2024-01-01}\n",
                     content_type="application/yaml")
    assert made["metadata"]["annotations"] == {"at": "2024-01-01"}
    assert caller.refused("POST", "/api/v1/nodes", b"x", content_type="application/cbor")[:2] == (415, "UnsupportedMediaType")


def test_dry_runs_leave_no_trace(caller: Caller) -> None:
    before = caller.store.version
    caller.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}}, dryRun="All")
    assert caller.store.version == before
    caller.node()
    version = caller.store.version
    assert caller.patch("merge", "/api/v1/nodes/n", {"metadata": {"labels": {"a": "b"}}},
                        dryRun="All")["metadata"]["labels"] == {"a": "b"}
    caller.ok("DELETE", "/api/v1/nodes/n", {"dryRun": ["All"]})
    assert caller.store.version == version
    assert "labels" not in caller.ok("GET", "/api/v1/nodes/n")["metadata"]
    assert caller.refused("POST", "/api/v1/nodes", {"metadata": {"name": "m"}}, dryRun="Some")[0] == 422


def test_put_needs_the_name_of_the_path_and_takes_the_version_as_precondition(caller: Caller) -> None:
    old = caller.node()
    assert caller.refused("PUT", "/api/v1/nodes/n", {"metadata": {"name": "m"}})[0] == 400
    caller.patch("merge", "/api/v1/nodes/n", {"spec": {"unschedulable": True}})
    status, reason, message = caller.refused("PUT", "/api/v1/nodes/n", old)
    assert (status, reason) == (409, "Conflict")
    assert message == ('Operation cannot be fulfilled on nodes "n": the object has been modified; '
                       "please apply your changes to the latest version and try again")
    del old["metadata"]["resourceVersion"]
    assert caller.ok("PUT", "/api/v1/nodes/n", old)["spec"] == {}


def test_leases_need_a_version_to_be_replaced(caller: Caller) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = caller.ok("POST", path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    made["spec"]["holderIdentity"] = "b"
    version = made["metadata"].pop("resourceVersion")
    assert "metadata.resourceVersion: Invalid value: 0x0: must be specified" in caller.refused("PUT", f"{path}/l", made)[2]
    made["metadata"]["resourceVersion"] = version
    assert caller.ok("PUT", f"{path}/l", made)["spec"]["holderIdentity"] == "b"


@pytest.mark.parametrize(("kind", "change"), [
    ("merge", {"metadata": {"labels": {"a": "b"}}}),
    ("strategic", {"metadata": {"labels": {"a": "b"}}}),
    ("json", [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
    ("apply", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"a": "b"}}}),
])
def test_patches_change_and_repeat_without_effect(caller: Caller, kind: str, change: Any) -> None:
    caller.node()
    query = {"fieldManager": "me"} if kind == "apply" else {}
    first = caller.patch(kind, "/api/v1/nodes/n", change, **query)
    assert first["metadata"]["labels"] == {"a": "b"}
    assert caller.patch(kind, "/api/v1/nodes/n", change,
                        **query)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_json_patch_preconditions(caller: Caller) -> None:
    uid = caller.node()["metadata"]["uid"]
    change = [{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "test", "path": "/spec/unschedulable", "value": None},
              {"op": "add", "path": "/spec/unschedulable", "value": True}]
    assert caller.patch("json", "/api/v1/nodes/n", change)["spec"]["unschedulable"] is True
    status, reason, message = caller.refused("PATCH", "/api/v1/nodes/n", change, content_type=PATCHES["json"])
    assert (status, reason, message) == (422, "Invalid", "the server rejected our request due to an error in our request")


@pytest.mark.parametrize(("meta", "refusal"), [
    ({"resourceVersion": "1"}, (409, "Conflict")), ({"uid": "other"}, (422, "Invalid")),
])
def test_a_merge_patch_can_carry_a_precondition(caller: Caller, meta: dict[str, str], refusal: tuple[int, str]) -> None:
    caller.node()
    found = caller.refused("PATCH", "/api/v1/nodes/n", {"metadata": {**meta, "labels": {"a": "b"}}},
                           content_type=PATCHES["merge"])
    assert found[:2] == refusal


def test_patches_of_what_is_not_there_or_not_understood(caller: Caller) -> None:
    assert caller.refused("PATCH", "/api/v1/nodes/n", {}, content_type=PATCHES["merge"])[0] == 404
    caller.node()
    assert caller.refused("PATCH", "/api/v1/nodes/n", {}, content_type="text/plain")[0] == 415
    assert caller.refused("PATCH", "/api/v1/nodes/n", {}, content_type=PATCHES["apply"])[0] == 422
    assert caller.refused("PATCH", "/api/v1/nodes/n", [], content_type=PATCHES["merge"])[0] == 400


def test_apply_creates_what_is_missing(caller: Caller) -> None:
    answer = caller.send("PATCH", f"{CRDS}/things.example.com", definition(), content_type=PATCHES["apply"], fieldManager="me")
    assert answer.status == 201
    caller.ok("POST", THINGS, {**THING, "metadata": {"name": "t"}})
    assert caller.refused("PATCH", f"{THINGS}/t", {}, content_type=PATCHES["strategic"])[0] == 415


def test_status_has_its_own_endpoint(caller: Caller) -> None:
    caller.node()
    both = {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    after = caller.patch("strategic", "/api/v1/nodes/n/status", both)
    assert "unschedulable" not in after["spec"]
    assert after["status"]["conditions"][0]["type"] == "Ready"
    after = caller.patch("merge", "/api/v1/nodes/n", {"spec": {"unschedulable": True}, "status": {"conditions": []}})
    assert after["spec"]["unschedulable"]
    assert after["status"]["conditions"]


def test_deletions(caller: Caller) -> None:
    caller.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    gone = caller.ok("DELETE", "/api/v1/namespaces/default/configmaps/c")
    assert (gone["kind"], gone["status"], gone["details"]["name"]) == ("Status", "Success", "c")
    pod = caller.pod()
    terminating = caller.ok("DELETE", f"{PODS}/p")
    assert terminating["metadata"]["deletionGracePeriodSeconds"] == 30
    assert caller.refused("DELETE", f"{PODS}/p", {"preconditions": {"uid": "other"}})[0] == 409
    caller.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})
    assert caller.refused("GET", f"{PODS}/p") == (404, "NotFound", 'pods "p" not found')
    assert caller.refused("DELETE", f"{PODS}/p", propagationPolicy="Sideways")[0] == 422


def test_pods_without_a_node_go_at_once(caller: Caller) -> None:
    caller.pod(node=None)
    caller.ok("DELETE", f"{PODS}/p")
    assert caller.store.list("pods") == []


def test_delete_collection_takes_what_the_selector_wants(caller: Caller) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        caller.pod(name, node=None, labels={"app": app})
    found = caller.ok("DELETE", PODS, labelSelector="app=x")
    assert [pod["metadata"]["name"] for pod in found["items"]] == ["a", "b"]
    assert [pod["metadata"]["name"] for pod in caller.store.list("pods")] == ["c"]


def test_binding(caller: Caller) -> None:
    caller.pod(node=None)
    caller.ok("POST", f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n"}})
    assert caller.ok("GET", f"{PODS}/p")["spec"]["nodeName"] == "n"
    assert caller.refused("POST", f"{PODS}/p/binding", {"target": {"name": "m"}})[0] == 409
