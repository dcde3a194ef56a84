"""Custom resources: schemas, defaults, pruning, rules, status, and how definitions come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuward.crd.generate import all_crds
from gpuward.kube.http.client import JSON_PATCH
from gpuward.kube.resources import CLUSTER_POLICIES, CUSTOM_RESOURCE_DEFINITIONS, NVIDIA_DRIVERS, ROLLOUT_POLICIES
from tests.contract.api import STRATEGIC_PATCH, Api, Object, Server
from tests.contract.crd_helpers import until_served
from tests.contract.objects import names

CRDS = CUSTOM_RESOURCE_DEFINITIONS.path()
SPEC: Object = {"type": "object", "required": ["size"], "properties": {
    "size": {"type": "integer", "minimum": 1, "maximum": 9},
    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
    "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed stays"}]},
    "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
    "deep": {"type": "object", "properties": {"on": {"type": "boolean", "default": True}}},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "words": {"type": "object", "additionalProperties": {"type": "string"}},
    "share": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    "parts": {"type": "array", "maxItems": 2, "items": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
}, "x-kubernetes-validations": [{"rule": "!has(self.code) || self.size > 2", "message": "a code needs size 3"}]}


LOGIC: Object = {
    "orleft": "self.a == 1 || true", "orright": "true || self.a == 1", "orneither": "self.a == 1 || false",
    "andleft": "!(self.a == 1 && false)", "andright": "!(false && self.a == 1)", "andneither": "self.a == 1 && true",
    "alldecided": "!self.parts.all(x, x.b == 1)", "choice": "self.a == 1 ? true : true",
}
"""Rules about objects that lack a field which the rules ask for."""
UNDECIDED = {"orneither", "andneither", "choice"}
PARTS: Object = {"type": "array", "maxItems": 3, "items": {"type": "object", "properties": {"b": {"type": "integer"}}}}
SPEC["properties"] |= {
    name: {"type": "object", "properties": {"a": {"type": "integer"}, "parts": PARTS},
           "x-kubernetes-validations": [{"rule": rule, "message": "not as it has to be"}]}
    for name, rule in LOGIC.items()
}


def definition(group: str) -> Object:
    return {"metadata": {"name": f"widgets.{group}"}, "spec": {
        "group": group, "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wg"]},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                      "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                                                   {"name": "Phase", "type": "string", "priority": 1,
                                                    "jsonPath": ".status.phase"},
                                                   {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                      "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                          "spec": SPEC, "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}}}]}}


@pytest.fixture(scope="module")
def group(server: Server) -> Iterator[str]:
    """Serve widgets of a group of this module's own."""
    name = "contract.example.com"
    assert server.request("POST", CRDS, definition(name)).status == 201
    until_served(server, f"/apis/{name}/v1/widgets")
    yield name
    server.request("DELETE", f"{CRDS}/widgets.{name}")


def widgets(api: Api, group: str) -> str:
    return f"/apis/{group}/v1/namespaces/{api.ns}/widgets"


def widget(name: str = "w", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"size": 1, **spec}}


def test_a_custom_object_is_defaulted_pruned_and_counted(api: Api, group: str) -> None:
    path = widgets(api, group)
    body = {**widget(deep={}, unknown="x", free={"any": {"thing": 1}}), "status": {"phase": "Early"}, "other": 1,
            "apiVersion": f"{group}/v1", "kind": "Widget"}
    reply = api.post(path, body)
    assert reply.status == 201, reply.body
    assert sorted(reply.warnings) == ['unknown field "other"', 'unknown field "spec.unknown"']
    made = reply.body
    assert made["spec"] == {"size": 1, "color": "red", "deep": {"on": True}, "free": {"any": {"thing": 1}}}
    assert "status" not in made
    assert "other" not in made
    assert made["metadata"]["generation"] == 1
    same = api.merge(f"{path}/w", {"metadata": {"labels": {"a": "b"}}}).body
    assert same["metadata"]["generation"] == 1
    more = api.merge(f"{path}/w", {"spec": {"size": 2}}).body
    assert more["metadata"]["generation"] == 2
    again = api.merge(f"{path}/w", {"spec": {"size": 2}}).body
    assert again["metadata"]["resourceVersion"] == more["metadata"]["resourceVersion"]


@pytest.mark.parametrize(("spec", "reason", "field"), [
    ({"size": 0}, "FieldValueInvalid", "spec.size"), ({"size": 10}, "FieldValueInvalid", "spec.size"),
    ({"size": "1"}, "FieldValueTypeInvalid", "spec.size"), ({"color": "green"}, "FieldValueNotSupported", "spec.color"),
    ({"size": None}, "FieldValueRequired", "spec.size"), ({"code": "ABC", "size": 3}, "FieldValueInvalid", "spec.code"),
    ({"code": "abcde", "size": 3}, "FieldValueTooLong", "spec.code"),
    ({"words": {"a": 1}}, "FieldValueTypeInvalid", "spec.words.a"),
    ({"share": True}, "FieldValueTypeInvalid", "spec.share"), ({"parts": [{}]}, "FieldValueRequired", "spec.parts[0].name"),
    ({"parts": [{"name": "a"}, {"name": "a"}]}, "FieldValueDuplicate", "spec.parts[1]"),
    ({"parts": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}, "FieldValueTooMany", "spec.parts"),
    ({"code": "abc"}, "FieldValueInvalid", "spec"),
])
def test_what_the_schema_refuses(api: Api, group: str, spec: Object, reason: str, field: str) -> None:
    refused = api.post(widgets(api, group), {**widget(**spec), "apiVersion": f"{group}/v1", "kind": "Widget"})
    assert (refused.status, refused.reason) == (422, "Invalid"), refused.body
    assert (reason, field) in refused.causes, refused.body["details"]
    assert refused.message.startswith(f'Widget.{group} "w" is invalid: ')


def test_rules_about_changes_hold_for_changes(api: Api, group: str) -> None:
    path = widgets(api, group)
    api.made(path, {**widget(fixed="a"), "apiVersion": f"{group}/v1", "kind": "Widget"})
    refused = api.merge(f"{path}/w", {"spec": {"fixed": "b"}})
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", "spec.fixed")})
    assert refused.message.endswith("fixed stays")
    assert api.merge(f"{path}/w", {"spec": {"fixed": "a", "size": 2}}).status == 200
    assert api.merge(f"{path}/w", {"spec": {"code": "abc"}}).message.endswith("a code needs size 3")


@pytest.mark.parametrize("name", LOGIC)
def test_rules_absorb_errors_where_another_operand_decides(api: Api, group: str, name: str) -> None:
    body = {**widget(), "apiVersion": f"{group}/v1", "kind": "Widget"}
    body["spec"][name] = {"parts": [{}, {"b": 0}]}
    reply = api.post(widgets(api, group), body)
    assert reply.status == (422 if name in UNDECIDED else 201), reply.body
    if name in UNDECIDED:
        assert reply.causes == {("FieldValueInvalid", f"spec.{name}")}
        assert "no such key: a" in reply.message


def test_custom_objects_need_their_kind_and_version(api: Api, group: str) -> None:
    refused = api.post(widgets(api, group), widget())
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert "Object 'Kind' is missing in" in refused.message


@pytest.mark.parametrize(("mode", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
def test_field_validation(api: Api, group: str, mode: str, status: int) -> None:
    body = {**widget(unknown=1), "apiVersion": f"{group}/v1", "kind": "Widget"}
    reply = api.post(widgets(api, group), body, fieldValidation=mode)
    assert reply.status == status, reply.body
    assert bool(reply.warnings) == (mode == "Warn")
    if mode == "Strict":
        assert 'strict decoding error: unknown field "spec.unknown"' in reply.message


def test_a_custom_status_has_its_own_endpoint(api: Api, group: str) -> None:
    path = widgets(api, group)
    made = api.made(path, {**widget(), "apiVersion": f"{group}/v1", "kind": "Widget"})
    assert "status" not in api.merge(f"{path}/w", {"status": {"phase": "No"}}).body
    changed = api.merge(f"{path}/w/status", {"status": {"phase": "Yes"}, "spec": {"size": 5},
                                             "metadata": {"labels": {"a": "b"}}}).body
    assert (changed["status"], changed["spec"]["size"], changed["metadata"]["generation"]) == ({"phase": "Yes"}, 1, 1)
    assert changed["metadata"].get("labels") is None
    late = api.put(f"{path}/w", {**made, "spec": {"size": 3}})
    assert late.status == 409
    nameless = {**made, "metadata": {"name": "w"}, "spec": {"size": 3}}
    assert api.put(f"{path}/w", nameless).causes == {("FieldValueInvalid", "metadata.resourceVersion")}


def test_patches_of_custom_objects(api: Api, group: str) -> None:
    path = widgets(api, group)
    api.made(path, {**widget(parts=[{"name": "a"}]), "apiVersion": f"{group}/v1", "kind": "Widget"})
    assert api.strategic(f"{path}/w", {"spec": {"size": 2}}).status == 415
    assert names(api.merge(f"{path}/w", {"spec": {"parts": [{"name": "b"}]}}).body["spec"]["parts"] and [
        {"metadata": each} for each in api.get(f"{path}/w").body["spec"]["parts"]]) == ["b"]
    assert api.patch_json(f"{path}/w", {"op": "test", "path": "/spec/size", "value": 1},
                          {"op": "replace", "path": "/spec/size", "value": 4}).body["spec"]["size"] == 4
    refused = api.patch_json(f"{path}/w", {"op": "replace", "path": "/spec/size", "value": 40})
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", "spec.size")})
    assert JSON_PATCH != STRATEGIC_PATCH


def test_nulls_count_as_absent(api: Api, group: str) -> None:
    made = api.made(widgets(api, group), {**widget(color=None, code=None), "apiVersion": f"{group}/v1", "kind": "Widget"})
    assert made["spec"] == {"size": 1, "color": "red"}


def test_printer_columns(api: Api, group: str) -> None:
    path = widgets(api, group)
    api.made(path, {**widget(), "apiVersion": f"{group}/v1", "kind": "Widget"})
    table = api.table(path).body
    assert (table["kind"], [(one["name"], one["type"], one["priority"]) for one in table["columnDefinitions"]]) == (
        "Table", [("Name", "string", 0), ("Size", "integer", 0), ("Phase", "string", 1), ("Age", "date", 0)])
    (row,) = table["rows"]
    assert row["cells"][:3] == ["w", 1, None]
    assert row["object"]["kind"] == "PartialObjectMetadata"


def test_lists_of_custom_objects_say_the_kind_of_each(api: Api, group: str) -> None:
    path = widgets(api, group)
    api.made(path, {**widget(), "apiVersion": f"{group}/v1", "kind": "Widget"})
    listed = api.get(path).body
    assert (listed["kind"], listed["apiVersion"]) == ("WidgetList", f"{group}/v1")
    assert (listed["items"][0]["kind"], listed["items"][0]["apiVersion"]) == ("Widget", f"{group}/v1")


def test_a_definition_comes_and_goes(api: Api) -> None:
    group = f"{api.ns}.example.com"
    api.cluster_wide(CRDS, definition(group))
    crd = api.when(f"{CRDS}/widgets.{group}", lambda one: any(
        each["type"] == "Established" and each["status"] == "True" for each in one.get("status", {}).get("conditions") or ()))
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["status"]["acceptedNames"]["kind"] == "Widget"
    assert crd["metadata"]["generation"] == 1
    until_served(api.server, f"/apis/{group}/v1/widgets")
    held = {**widget(), "apiVersion": f"{group}/v1", "kind": "Widget"}
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.made(widgets(api, group), held)
    marked = api.delete(f"{CRDS}/widgets.{group}").body
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    api.when(f"{widgets(api, group)}/w", lambda one: one["metadata"].get("deletionTimestamp"))
    api.merge(f"{widgets(api, group)}/w", {"metadata": {"finalizers": None}})
    api.gone(f"{CRDS}/widgets.{group}")


@pytest.mark.parametrize("change", [{"scope": "Everywhere"}, {"group": "other.example.com"}, {"versions": []}])
def test_bad_definitions(api: Api, change: Object) -> None:
    body = definition(f"{api.ns}.example.com")
    body["spec"] |= change
    refused = api.post(CRDS, body)
    assert (refused.status, refused.reason) == (422, "Invalid"), refused.body


def test_nvidias_definitions_and_their_rules(api: Api) -> None:
    for crd in all_crds():
        reply = api.post(CRDS, dict(crd))
        assert reply.status in (201, 409), reply.body
    until_served(api.server, NVIDIA_DRIVERS.path())
    until_served(api.server, CLUSTER_POLICIES.path())
    driver = {"apiVersion": NVIDIA_DRIVERS.api_version, "kind": "NVIDIADriver", "metadata": {"name": api.ns}, "spec": {
        "driverType": "gpu", "image": "driver", "repository": "registry.example", "version": "570"}}
    made = api.cluster_wide(NVIDIA_DRIVERS.path(), driver)
    assert made["spec"]["driverType"] == "gpu"
    path = NVIDIA_DRIVERS.path("", api.ns)
    refused = api.merge(path, {"spec": {"driverType": "vgpu"}})
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", "spec.driverType")})
    assert "driverType is an immutable field" in refused.message


@pytest.mark.parametrize(("spec", "field"), [
    ({"deadlines": {"upgrade-done": "1m"}}, "spec.deadlines"),
    ({"deadlines": {"drain-required": "soon"}}, "spec.deadlines.drain-required"),
    ({"failureBudget": {"percent": 101}}, "spec.failureBudget.percent"),
    ({"retries": -1}, "spec.retries"),
    ({"retryBackoff": ""}, "spec.retryBackoff"),
])
def test_our_own_definition_refuses_what_cannot_be_followed(api: Api, spec: Object, field: str) -> None:
    body = {"apiVersion": ROLLOUT_POLICIES.api_version, "kind": "RolloutPolicy", "metadata": {"name": api.ns}}
    define_rollout_policies(api)
    refused = api.post(ROLLOUT_POLICIES.path(), {**body, "spec": spec})
    assert refused.status == 422
    assert field in {path for _, path in refused.causes}


def test_our_own_definition_fills_in_its_defaults(api: Api) -> None:
    define_rollout_policies(api)
    deadlines = {"validation-required": "1h30m"}
    body = {"apiVersion": ROLLOUT_POLICIES.api_version, "kind": "RolloutPolicy", "metadata": {"name": api.ns}}
    made = api.cluster_wide(ROLLOUT_POLICIES.path(), {**body, "spec": {"deadlines": deadlines}})
    assert made["spec"] == {
        "deadlines": deadlines, "deviceHolders": "Hold", "discoveryGrace": "10m", "failureBudget": {"nodes": 3, "percent": 10},
        "killAtDeadline": False, "removeAtOnce": False, "retries": 3, "retryBackoff": "1m", "waves": [], "windows": [],
        "prestage": {"mode": "Off", "parallel": 10, "onFailure": "Hold"},
        "windowFit": "Off", "interop": {"nvsentinel": False, "slurm": False, "nodeConditions": False,
                                          "nodeMaintenance": "Off"},
    }


def define_rollout_policies(api: Api) -> None:
    """Install the definition, once for all tests."""
    reply = api.post(CRDS, dict(next(crd for crd in all_crds() if crd["spec"]["group"] == ROLLOUT_POLICIES.group)))
    assert reply.status in (201, 409), reply.body
    until_served(api.server, ROLLOUT_POLICIES.path())
