"""Who owns which field: paths, merging, removal, conflicts, writes by others."""

from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors, ownership
from kubesandbox.ownership import Manager
from kubesandbox.shapes import BuiltInShape, SchemaShape

POD = BuiltInShape("core.v1.Pod")
CUSTOM = SchemaShape({"type": "object", "properties": {
    "spec": {"type": "object", "properties": {
        "words": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b", "a"],
                  "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic"}, "list": {"type": "array"}}}}})


def who(name: str, operation: str = "Apply") -> Manager:
    return Manager(name, operation, "v1", "2026-01-01T00:00:00Z")


def applied(live: Any, wanted: Any, name: str = "one", *, force: bool = False, shape: Any = CUSTOM) -> Any:
    merged, fields = ownership.apply(shape, live, wanted, who(name), force=force)
    return {**merged, "metadata": {**merged.get("metadata", {}), "managedFields": fields}}


@pytest.mark.parametrize(("value", "expected"), [
    ({"spec": {"words": ["x"], "list": [1]}}, {("f:spec", "f:words", 'v:"x"'), ("f:spec", "f:list")}),
    ({"spec": {"whole": {"a": {"b": 1}}}}, {("f:spec", "f:whole")}),
    ({"spec": {"parts": [{"a": "x", "b": 1}]}},
     {("f:spec", "f:parts", 'k:{"a":"x","b":1}', step) for step in (".", "f:a", "f:b")}),
    ({"kind": "X", "metadata": {"name": "n", "labels": {"a": "b"}}}, {("f:metadata", "f:labels", "f:a")}),
])
def test_paths(value: Any, expected: set[Any]) -> None:
    assert set(ownership.leaves(CUSTOM, value)) == expected


def test_a_dropped_item_goes_with_its_key_and_a_shared_one_stays() -> None:
    live = applied(None, {"spec": {"parts": [{"a": "x", "b": 1}, {"a": "y", "b": 2}], "words": ["p", "q"]}})
    live = applied(live, {"spec": {"parts": [{"a": "y", "b": 2}], "words": ["q", "r"]}}, "two")
    after = applied(live, {"spec": {"words": ["p"]}})
    assert after["spec"] == {"parts": [{"a": "y", "b": 2}], "words": ["p", "q", "r"]}


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(errors.BadRequest, match="lacks its key: b, a"):
        applied(None, {"spec": {"parts": [{"a": "x"}]}})


def test_conflicts_name_every_field_and_owner() -> None:
    live = applied(None, {"spec": {"containers": [{"name": "c", "image": "i", "command": ["x"]}]}}, shape=POD)
    wanted = {"spec": {"containers": [{"name": "c", "image": "j", "command": ["y"]}]}}
    with pytest.raises(errors.Conflict) as caught:
        applied(live, wanted, "two", shape=POD)
    assert [(cause["field"], cause["message"]) for cause in caught.value.details["causes"]] == [
        ('.spec.containers[name="c"].command', 'conflict with "one"'),
        ('.spec.containers[name="c"].image', 'conflict with "one"')]
    assert "2 conflicts" in caught.value.message
    forced = applied(live, wanted, "two", force=True, shape=POD)
    assert forced["spec"] == wanted["spec"]
    assert {one["manager"] for one in forced["metadata"]["managedFields"]} == {"one", "two"}


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    live = {"metadata": {"name": "n"}, "spec": {"whole": {"a": 1}, "list": [1]}, "status": {"x": 1}}
    with pytest.raises(errors.Conflict, match=r'conflict with "before-first-apply" using v1: \.spec\.list'):
        applied(live, {"spec": {"list": [2]}})
    assert applied(live, {"spec": {"list": [1]}})["spec"] == live["spec"]


def test_other_writes_take_what_they_change_and_free_what_they_remove() -> None:
    live = applied(None, {"spec": {"words": ["p"], "list": [1], "whole": {"a": 1}}})
    changed = {**live, "spec": {"words": ["p"], "list": [2]}}
    fields = ownership.after_update(CUSTOM, live, changed, who("hand", "Update"))
    assert {(one["manager"], one["operation"]): one["fieldsV1"] for one in fields} == {
        ("one", "Apply"): {"f:spec": {"f:words": {'v:"p"': {}}}}, ("hand", "Update"): {"f:spec": {"f:list": {}}}}
