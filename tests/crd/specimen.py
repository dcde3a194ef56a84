"""Objects made from a CRD schema: one that fills in every field, and the defaulting that an API server would do."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeAlias

from gpuward.crd.facts import Schema

Path: TypeAlias = tuple[str | int, ...]

_STRINGS = {"date-time": "2026-01-31T12:00:00Z"}


def full(schema: Schema) -> Any:
    """Return a valid value that has every field of the schema, every list with one item and every map with one entry."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "integer")
    if kind == "object":
        if "additionalProperties" in schema:
            return {"example.com/key": full(schema["additionalProperties"])}
        return {name: full(below) for name, below in schema.get("properties", {}).items()}
    if kind == "array":
        return [full(schema["items"])]
    if kind == "integer":
        return max(7, schema.get("minimum", 7))
    if kind == "boolean":
        return True
    return "5m" if "ms)" in schema.get("pattern", "") else _STRINGS.get(schema.get("format", ""), "text")


def defaulted(value: Any, schema: Schema) -> Any:
    """Return a value with the schema's defaults filled in where the containing object is present."""
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        filled = {name: deepcopy(below["default"]) for name, below in properties.items() if "default" in below}
        filled |= {key: item for key, item in value.items() if item is not None}
        return {key: defaulted(item, properties.get(key, schema.get("additionalProperties", {})))
                for key, item in filled.items()}
    if isinstance(value, list):
        return [defaulted(item, schema.get("items", {})) for item in value]
    return value


def skeleton(schema: Schema) -> Any:
    """Return the object of the schema with every part present that may be empty, which is where defaults apply."""
    parts = {name: skeleton(below) for name, below in schema.get("properties", {}).items() if "properties" in below}
    return {name: part for name, part in parts.items() if _is_complete(part, schema["properties"][name])}


def _is_complete(part: Any, schema: Schema) -> bool:
    properties = schema["properties"]
    return all(name in part or "default" in properties[name] for name in schema.get("required", ()))


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of everything inside a value, containers included."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def replace(value: Any, path: Path, by: Any) -> Any:
    """Replace the item at a path inside a value, and return what was there."""
    for key in path[:-1]:
        value = value[key]
    before, value[path[-1]] = value[path[-1]], by
    return before
