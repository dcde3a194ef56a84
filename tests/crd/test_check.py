from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.check import field_path, violations
from gpuward.crd.kubernetes import QUANTITY

INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
REQUIRED = {"type": "object", "required": ["a", "b", "c"], "properties": {
    "a": {"type": "string", "default": "x"},
    "b": {"type": "object", "properties": {}},
    "c": {"type": "string"},
}}


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({"type": "string"}, ["", "a"], [1, True, [], {}]),
    ({"type": "integer"}, [0, -5, 2**62], ["1", True, 1.0, 2**63]),
    ({"type": "integer", "format": "int32"}, [2**31 - 1, -(2**31)], [2**31]),
    ({"type": "integer", "minimum": 1}, [1], [0]),
    ({"type": "integer", "minimum": 0, "maximum": 20}, [0, 20], [21]),
    ({"type": "string", "pattern": "^a$"}, ["a"], ["a\n"]),
    ({"type": "boolean"}, [True, False], [1, "true"]),
    ({"type": "string", "enum": ["on", ""]}, ["on", ""], ["off"]),
    ({"type": "string", "pattern": "[a-z]+"}, ["1a1"], ["", "1"]),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc"]),
    ({"type": "array", "items": {"type": "string"}}, [[], ["a"]], ["a", {}, [1]]),
    ({"type": "object", "additionalProperties": {"type": "string"}}, [{}, {"a": "b"}], [[], {"a": 1}]),
    (INT_OR_STRING, [1, "1", "25%"], [True, 1.5, []]),
    (QUANTITY, [1, "500m", "2Gi", ".5", "1e3"], [1.5, "2 Gi", "lots"]),
    (REQUIRED, [{"c": ""}, {"a": "", "b": {}, "c": "", "unknown": 1}], [{}, {"c": None}]),
])
def test_values_against_schemas(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if list(violations(value, schema))] == []
    assert [value for value in bad if not list(violations(value, schema))] == []


@pytest.mark.parametrize(("path", "key", "expected"), [
    ("", "spec", "spec"), ("spec", "driver", "spec.driver"), ("labels", "a.b/c", "labels['a.b/c']"),
])
def test_field_paths(path: str, key: str, expected: str) -> None:
    assert field_path(path, key) == expected
