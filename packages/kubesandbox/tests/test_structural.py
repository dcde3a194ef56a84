from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import structural

SCHEMA: dict[str, Any] = {"type": "object", "properties": {
    "spec": {"type": "object", "default": {}, "properties": {
        "a": {"type": "string", "default": "A"}, "deep": {"type": "object",
                                                          "properties": {
            "b": {"type": "integer", "default": 3}, "n": {"type": "string", "nullable": True}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "map": {"type": "object", "additionalProperties": {"type": "object",
                                                           "properties": {"c": {"type": "boolean", "default": False}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "D"}}}}}}}}


@pytest.mark.parametrize(("given", "stored", "unknown"), [
    ({}, {"spec": {"a": "A"}}, []),
    ({"spec": {"a": "x", "z": 1}}, {"spec": {"a": "x"}}, ["spec.z"]),
    ({"spec": {"a": None}}, {"spec": {"a": "A"}}, []),
    ({"spec": {"deep": None}}, {"spec": {"a": "A"}}, []),
    ({"spec": {"deep": {"n": None}}}, {"spec": {"a": "A", "deep": {"n": None, "b": 3}}}, []),
    ({"spec": {"map": {"k": None}, "list": None}}, {"spec": {"a": "A", "map": {}}}, []),
    ({"spec": {"deep": {}}}, {"spec": {"a": "A", "deep": {"b": 3}}}, []),
    ({"spec": {"free": {"any": {"thing": 1}}}}, {"spec": {"a": "A", "free": {"any": {"thing": 1}}}}, []),
    ({"spec": {"map": {"k": {}, "l": {"e": 1}}}}, {"spec": {"a": "A", "map": {"k": {"c": False}, "l": {"c": False}}}},
     ["spec.map.l.e"]),
    ({"spec": {"list": [{}, {"d": "x", "f": 1}]}}, {"spec": {"a": "A", "list": [{"d": "D"}, {"d": "x"}]}}, ["spec.list[1].f"]),
    ({"apiVersion": "v1", "metadata": {"name": "x"}, "other": 1}, {"apiVersion": "v1", "metadata": {"name": "x"},
                                                                   "spec": {"a": "A"}}, ["other"]),
])
def test_pruning_and_defaults(given: Any, stored: Any, unknown: list[str]) -> None:
    found: list[str] = []
    pruned = structural.prune(SCHEMA, given, "", found, root=True)
    structural.default(SCHEMA, pruned)
    assert (pruned, found) == (stored, unknown)
