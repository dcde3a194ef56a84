"""A value against a CRD schema: every violation as a sentence about one field.

This is the part of the API server's validation that NVIDIA's schemas use, applied after defaulting. It serves objects
that did not come through an API server with the right CRD: files, and clusters with an older schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from gpuward.crd.durations import DURATION, DURATION_WISH
from gpuward.crd.facts import Schema
from gpuward.crd.kubernetes import PROMETHEUS_DURATION, QUANTITY
from gpuward.errors import PolicyError

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,), "integer": (int,), "boolean": (bool,), "array": (list, tuple), "object": (Mapping,),
}
_WISHES: Final = {
    "string": "a string", "integer": "a whole number", "boolean": "true or false", "array": "a list",
    "object": "a mapping",
}
_WELL_KNOWN_PATTERNS: Final = {
    QUANTITY["pattern"]: "a quantity such as 1, 500m or 2Gi, in quotes unless it is whole",
    PROMETHEUS_DURATION: "a duration such as 15s or 1m30s",
    DURATION: DURATION_WISH,
}
_SIMPLE_NAME: Final = re.compile(r"^[A-Za-z0-9_-]+$")


def violations(value: object, schema: Schema, path: str = "") -> Iterator[PolicyError]:
    """Yield what the API server would refuse, in the order of the value's fields.

    Nulls count as absent fields, and a required field that has a default or for which `{}` would do may be absent.
    """
    if not _is_of_kind(value, schema):
        yield PolicyError(path, value, f"write {wish(schema, value)}")
    elif isinstance(value, Mapping):
        yield from _in_mapping(value, schema, path)
    elif isinstance(value, list | tuple):
        if not int(schema.get("minItems", 0)) <= len(value) <= int(schema.get("maxItems", len(value))):
            yield PolicyError(path, value, f"write {wish(schema)}")
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], f"{path}[{index}]")
    elif not _is_in_range(value, schema):
        yield PolicyError(path, value, f"write {wish(schema)}")


def wish(schema: Schema, instead_of: object = None) -> str:
    """Say in a few words what a schema accepts."""
    if "enum" in schema:
        choices = "one of " + ", ".join(choice or '""' for choice in schema["enum"])
        return f"{choices}, in quotes, as YAML reads Off as false" if instead_of is False and "Off" in schema["enum"] else choices
    if words := _WELL_KNOWN_PATTERNS.get(schema.get("pattern", "")):
        return words
    words = "a whole number or a string" if schema.get(_INT_OR_STRING) else _WISHES[schema["type"]]
    if "maximum" in schema:
        words += f" from {schema['minimum']} to {schema['maximum']}"
    elif "minimum" in schema:
        words += f" of at least {schema['minimum']}"
    if "minLength" in schema or "maxLength" in schema:
        words += f" of {schema.get('minLength', 0)} to {schema.get('maxLength', 'any number of')} characters"
    if "maxItems" in schema:
        words += f" of {schema['minItems']} to" if "minItems" in schema else " of at most"
        words += f" {schema['maxItems']} items"
    if "pattern" in schema:
        words += f" that matches {schema['pattern']}"
    if schema.get("type") in ("string", None) and isinstance(instead_of, int | float):
        words += ", that is, in quotes"
    if schema.get("type") in ("integer", "boolean") and isinstance(instead_of, str):
        words += ", without quotes"
    return words


def field_path(path: str, key: str) -> str:
    """Return the path of a field or map entry below a path; keys with dots or slashes go into brackets."""
    if not _SIMPLE_NAME.match(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def _is_of_kind(value: object, schema: Schema) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    kind = schema["type"]
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _is_in_range(value: object, schema: Schema) -> bool:
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        shortest, longest = int(schema.get("minLength", 0)), int(schema.get("maxLength", len(value)))
        return shortest <= len(value) <= longest and _matches(schema.get("pattern", ""), value)
    if isinstance(value, int) and not isinstance(value, bool):
        bits = 31 if schema.get("format") == "int32" else 63
        lowest: int = schema.get("minimum", -(1 << bits))
        highest: int = schema.get("maximum", (1 << bits) - 1)
        return lowest <= value <= highest
    return True


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile as the API server does, to which `$` is the end of the text and not the place before a last newline."""
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))


def _in_mapping(value: Mapping[Any, Any], schema: Schema, path: str) -> Iterator[PolicyError]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for key, item in value.items():
        below = properties.get(key) or schema.get("additionalProperties")
        if below and item is not None:
            yield from violations(item, below, field_path(path, str(key)))
    for key in schema.get("required", ()):
        if value.get(key) is None and not _may_be_absent(properties[key]):
            yield PolicyError(field_path(path, key), None, f"add it: {wish(properties[key])}")


def _may_be_absent(schema: Schema) -> bool:
    return "default" in schema or (schema.get("type") == "object" and not schema.get("required"))
