from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import openapi_rules


def told(schema: Any, value: Any, *old: Any) -> list[str]:
    return [f"{field}: {message}" for _, field, message in openapi_rules.violations(schema, value, "spec.x", *old)]


@pytest.mark.parametrize(("schema", "value", "message"), [
    ({"type": "integer", "minimum": 0}, -1, "spec.x: Invalid value: -1: spec.x in body should be greater than or equal to 0"),
    ({"type": "integer", "maximum": 5}, 6, "spec.x: Invalid value: 6: spec.x in body should be less than or equal to 5"),
    ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 0,
     "spec.x: Invalid value: 0: spec.x in body should be greater than 0"),
    ({"type": "string", "enum": ["a", "b"]}, "x", 'spec.x: Unsupported value: "x": supported values: "a", "b"'),
    ({"type": "string"}, 5, 'spec.x: Invalid value: "integer": spec.x in body must be of type string: "integer"'),
    ({"type": "boolean"}, "yes", 'spec.x: Invalid value: "string": spec.x in body must be of type boolean: "string"'),
    ({"type": "string"}, None, 'spec.x: Invalid value: "null": spec.x in body must be of type string: "null"'),
    ({"type": "integer"}, 1.5, 'spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"'),
    ({"type": "integer"}, True, 'spec.x: Invalid value: "boolean": spec.x in body must be of type integer: "boolean"'),
    ({"type": "string", "pattern": "^a+$"}, "b", "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'"),
    ({"type": "string", "minLength": 2}, "b", 'spec.x: Invalid value: "b": spec.x in body should be at least 2 chars long'),
    ({"type": "string", "maxLength": 2}, "bcd", "spec.x: Too long: may not be more than 2 bytes"),
    ({"type": "object", "required": ["k"]}, {}, "spec.x.k: Required value"),
    ({"type": "array", "maxItems": 1}, [1, 2], "spec.x: Too many: 2: must have at most 1 items"),
    ({"type": "array", "items": {"type": "string"}}, [1],
     'spec.x[0]: Invalid value: "integer": spec.x[0] in body must be of type string: "integer"'),
    ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "a"], 'spec.x[1]: Duplicate value: "a"'),
    ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]}, [{"n": 1}, {"n": 1, "v": 2}],
     'spec.x[1]: Duplicate value: {"n":1}'),
    ({"type": "object", "additionalProperties": {"type": "string"}}, {"k": 1},
     'spec.x.k: Invalid value: "integer": spec.x.k in body must be of type string: "integer"'),
    ({"x-kubernetes-int-or-string": True}, True,
     'spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"'),
    ({"type": "integer", "format": "int32"}, 2 ** 31,
     "spec.x: Invalid value: 2147483648: spec.x in body must be of type int32: 2147483648"),
    ({"type": "string", "format": "date-time"}, "now",
     'spec.x: Invalid value: "now": spec.x in body must be of type date-time: "now"'),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, [],
     "spec.x: Invalid value: []: spec.x in body must validate one and only one "
     "schema (oneOf). Found none valid"),
])
def test_refused(schema: Any, value: Any, message: str) -> None:
    assert told(schema, value) == [message]


@pytest.mark.parametrize(("schema", "value"), [
    ({"type": "integer", "minimum": 0}, 0), ({"type": "number"}, 3), ({"type": "integer"}, 3.0),
    ({"type": "string", "nullable": True}, None),
    ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, "25%"),
    ({"x-kubernetes-int-or-string": True}, 4),
    ({"type": "object", "x-kubernetes-validations": [{"rule": "self.all(x, false)"}]}, {}),
    ({"type": "string", "pattern": "b"}, "abc"), ({}, {"anything": [1]}),
])
def test_accepted(schema: Any, value: Any) -> None:
    assert told(schema, value) == []


def test_rules_of_the_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "a stays"}]}}, "x-kubernetes-validations": [{"rule": "has(self.a)"}]}
    assert told(schema, {"a": "x"}) == []
    assert told(schema, {"a": "y"}, {"a": "x"}) == ['spec.x.a: Invalid value: "y": a stays']
    assert told(schema, {}) == ["spec.x: Invalid value: {}: failed rule: has(self.a)"]


def test_unchanged_values_are_let_through() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "string"}}}
    assert told(schema, {"a": -1, "b": "new"}, {"a": -1, "b": "old"}) == []
    assert len(told(schema, {"a": -2, "b": "new"}, {"a": -1, "b": "old"})) == 1
