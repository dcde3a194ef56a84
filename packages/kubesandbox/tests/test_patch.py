from __future__ import annotations

import copy
from typing import Any

import pytest

from kubesandbox import errors, patch

DOC: dict[str, Any] = {"a": 1, "b": {"c": [1, 2, 3], "d/e": "x"}, "n": None}


def op(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, **more}


@pytest.mark.parametrize(("operations", "expected"), [
    ([op("replace", "/a", value=2)], {**DOC, "a": 2}),
    ([op("add", "/z", value={})], {**DOC, "z": {}}),
    ([op("add", "/a", value=5)], {**DOC, "a": 5}),
    ([op("remove", "/a")], {"b": DOC["b"], "n": None}),
    ([op("remove", "/b/d~1e")], {**DOC, "b": {"c": [1, 2, 3]}}),
    ([op("add", "/b/c/-", value=4)], {**DOC, "b": {**DOC["b"], "c": [1, 2, 3, 4]}}),
    ([op("add", "/b/c/1", value=9)], {**DOC, "b": {**DOC["b"], "c": [1, 9, 2, 3]}}),
    ([op("replace", "/b/c/0", value=9)], {**DOC, "b": {**DOC["b"], "c": [9, 2, 3]}}),
    ([op("remove", "/b/c/2")], {**DOC, "b": {**DOC["b"], "c": [1, 2]}}),
    ([op("copy", "/z", **{"from": "/a"})], {**DOC, "z": 1}),
    ([op("move", "/z", **{"from": "/a"})], {"b": DOC["b"], "n": None, "z": 1}),
    ([op("test", "/a", value=1), op("remove", "/a")], {"b": DOC["b"], "n": None}),
])
def test_json_patches(operations: Any, expected: Any) -> None:
    before = copy.deepcopy(DOC)
    assert patch.apply_json(DOC, operations) == expected
    assert before == DOC


@pytest.mark.parametrize(("operation", "passes"), [
    (op("test", "/a", value=1), True), (op("test", "/a", value=2), False), (op("test", "/a", value=True), False),
    (op("test", "/a"), False),
    (op("test", "/missing", value=None), True), (op("test", "/missing"), True), (op("test", "/missing", value=""), False),
    (op("test", "/n", value=None), True), (op("test", "/n", value={}), False),
    (op("test", "/missing/deeper", value=None), False), (op("test", "/a/deeper", value=None), False),
    (op("test", "/b/c", value=[1, 2, 3]), True), (op("test", "/b/c/0", value=1), True), (op("test", "/b/c/9", value=None), False),
    (op("test", "/b", value={"d/e": "x", "c": [1, 2, 3]}), True),
])
def test_the_test_operation(operation: Any, passes: bool) -> None:
    if passes:
        assert patch.apply_json(DOC, [operation]) == DOC
    else:
        with pytest.raises(patch.DoesNotApply, match="the server rejected our request"):
            patch.apply_json(DOC, [operation])


@pytest.mark.parametrize("operation", [
    op("remove", "/missing"), op("replace", "/missing/x", value=1), op("add", "/x/y", value=1), op("remove", "/b/c/7"),
    op("add", "/b/c/9", value=1), op("frobnicate", "/a"), op("copy", "/z"), op("copy", "/z", **{"from": "/nope/x"}),
    {"op": "add"},
    op("add", "a", value=1), op("replace", "/b/c/x", value=1),
])
def test_operations_that_do_not_fit(operation: Any) -> None:
    with pytest.raises(patch.DoesNotApply) as caught:
        patch.apply_json(DOC, [operation])
    assert caught.value.status == 422
    assert caught.value.cause


@pytest.mark.parametrize(("operation", "value"), [
    (op("replace", "/new", value=1), 1), (op("copy", "/new", **{"from": "/nope"}), None),
])
def test_operations_that_take_an_absent_key_for_null(operation: Any, value: Any) -> None:
    assert patch.apply_json(DOC, [operation]) == {**DOC, "new": value}


def test_what_is_no_patch() -> None:
    with pytest.raises(errors.BadRequest):
        patch.apply_json(DOC, {"op": "add"})


@pytest.mark.parametrize(("original", "change", "expected"), [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}), ({"a": "b"}, {"a": None}, {}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}), ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}), ({"a": [1]}, {"a": [2, None]}, {"a": [2, None]}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}), ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
])
def test_merge_patches(original: Any, change: Any, expected: Any) -> None:
    before = copy.deepcopy(original)
    assert patch.merge(original, change) == expected
    assert original == before
