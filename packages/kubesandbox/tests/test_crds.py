"""Custom resources: from a definition to validated objects and back to nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sandbox_helpers.calls import CRDS, PATCHES, THING, THINGS, Caller, definition, kind_schema


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    found.ok("POST", CRDS, definition())
    return found


def test_a_definition_serves_its_resource_at_once(caller: Caller) -> None:
    stored = caller.ok("GET", f"{CRDS}/things.example.com")
    assert {one["type"]: one["status"] for one in stored["status"]["conditions"]} == {"NamesAccepted": "True",
                                                                                      "Established": "True"}
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["status"]["acceptedNames"]["listKind"] == "ThingList"
    made = caller.ok("POST", THINGS, {**THING, "metadata": {"name": "t"}, "spec": {"size": 1}})
    assert (made["kind"], made["spec"], made["metadata"]["generation"]) == ("Thing", {"size": 1, "color": "red"}, 1)
    assert caller.ok("GET", THINGS)["kind"] == "ThingList"


def test_spec_and_status_are_apart(caller: Caller) -> None:
    caller.ok("POST", THINGS, {**THING, "metadata": {"name": "t"}, "spec": {}, "status": {"state": "early"}})
    assert "status" not in caller.ok("GET", f"{THINGS}/t")
    after = caller.patch("merge", f"{THINGS}/t/status", {"spec": {"size": 9}, "status": {"state": "ready"},
                                                         "metadata": {"labels": {"a": "b"}}})
    assert (after["status"], after["spec"], after["metadata"].get("labels")) == ({"state": "ready"}, {"color": "red"}, None)
    assert after["metadata"]["generation"] == 1
    after = caller.patch("merge", f"{THINGS}/t", {"spec": {"size": 9}, "status": {"state": "gone"}})
    assert (after["status"], after["metadata"]["generation"]) == ({"state": "ready"}, 2)


@pytest.mark.parametrize(("spec", "message"), [
    ({"size": -1}, 'Thing.example.com "t" is invalid: spec.size: Invalid value: -1: '
     "spec.size in body should be greater than or equal to 0"),
    ({"size": "big"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
])
def test_the_schema_is_enforced(caller: Caller, spec: Any, message: str) -> None:
    status, reason, told = caller.refused("POST", THINGS, {**THING, "metadata": {"name": "t"}, "spec": spec})
    assert (status, reason) == (422, "Invalid")
    assert message in told


def test_unknown_fields_are_pruned_and_told(caller: Caller) -> None:
    answer = caller.send("POST", THINGS, {**THING, "metadata": {"name": "t"}, "spec": {"colour": "blue"}})
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'
    assert caller.ok("GET", f"{THINGS}/t")["spec"] == {"color": "red"}
    found = caller.refused("POST", THINGS, {**THING, "metadata": {"name": "u"}, "spec": {"colour": "blue"}},
                           fieldValidation="Strict")
    assert found[2] == ('Thing in version "v1" cannot be handled as a Thing: strict decoding error: unknown field "spec.colour"')


def test_replacing_needs_a_version(caller: Caller) -> None:
    made = caller.ok("POST", THINGS, {**THING, "metadata": {"name": "t"}})
    version = made["metadata"].pop("resourceVersion")
    assert "metadata.resourceVersion" in caller.refused("PUT", f"{THINGS}/t", made)[2]
    made["metadata"]["resourceVersion"] = version
    assert caller.ok("PUT", f"{THINGS}/t", made)["metadata"]["resourceVersion"] == version


def test_a_new_schema_holds_from_then_on(caller: Caller) -> None:
    caller.ok("POST", THINGS, {**THING, "metadata": {"name": "t"}, "spec": {"size": 1}})
    wider = definition(kind_schema(size={"type": "integer"}, shape={"type": "string", "enum": ["round"]}))
    caller.patch("merge", f"{CRDS}/things.example.com", {"spec": wider["spec"]})
    assert caller.patch("merge", f"{THINGS}/t", {"spec": {"size": -3, "shape": "round"}})["spec"]["size"] == -3
    found = caller.refused("PATCH", f"{THINGS}/t", {"spec": {"shape": "flat"}}, content_type=PATCHES["merge"])
    assert 'spec.shape: Unsupported value: "flat": supported values: "round"' in found[2]


def test_every_served_version_shows_the_same_objects(caller: Caller) -> None:
    two = definition()
    two["spec"]["versions"].append({**copy.deepcopy(two["spec"]["versions"][0]), "name": "v2", "storage": False})
    caller.patch("merge", f"{CRDS}/things.example.com", {"spec": two["spec"]})
    caller.ok("POST", "/apis/example.com/v2/things", {"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "t"}})
    assert caller.ok("GET", f"{THINGS}/t")["apiVersion"] == "example.com/v1"
    assert caller.ok("GET", "/apis/example.com/v2/things/t")["apiVersion"] == "example.com/v2"
    assert caller.patch("merge", "/apis/example.com/v2/things/t", {"spec": {"size": 4}})["apiVersion"] == "example.com/v2"


def test_deleting_the_definition_takes_the_objects_along(caller: Caller) -> None:
    caller.ok("POST", THINGS, {**THING, "metadata": {"name": "plain"}})
    caller.ok("POST", THINGS, {**THING, "metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    caller.ok("DELETE", f"{CRDS}/things.example.com")
    assert [one["metadata"]["name"] for one in caller.ok("GET", THINGS)["items"]] == ["held"]
    caller.patch("merge", f"{THINGS}/held", {"metadata": {"finalizers": None}})
    assert caller.send("GET", THINGS).status == 404
    assert caller.refused("GET", f"{CRDS}/things.example.com")[0] == 404
    caller.ok("POST", CRDS, definition())
    assert caller.ok("GET", THINGS)["items"] == []


@pytest.mark.parametrize(("change", "message"), [
    ({"scope": "Galaxy"}, 'spec.scope: Unsupported value: "Galaxy"'),
    ({"group": "other.com"}, 'must be spec.names.plural+"."+spec.group'),
    ({"versions": []}, "must have exactly one version marked as storage version"),
    ({"names": {"kind": "X"}}, "spec.names.plural: Required value"),
])
def test_broken_definitions_are_refused(change: Any, message: str) -> None:
    body = definition()
    body["spec"].update(change)
    assert message in Caller().refused("POST", CRDS, body)[2]
