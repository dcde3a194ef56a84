"""Validation of custom resources by their OpenAPI schema, worded as kube-apiserver words it.

Of CEL rules (`x-kubernetes-validations`) those are evaluated that `cel` can read.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import cel

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]
Cause = tuple[str, str, str]
"""Reason, field, message."""

_ABSENT: Final = object()
_RANGES: Final = {"int32": (-2 ** 31, 2 ** 31 - 1), "int64": (-2 ** 63, 2 ** 63 - 1)}


def violations(schema: Schema, value: Any, path: str, old: Any = _ABSENT) -> Iterator[Cause]:
    """Yield what is wrong with a value; parts that equal the stored `old` ones are let through, as a real server does."""
    if old is not _ABSENT and value == old:
        return
    found = _type_name(value)
    wanted = _types(schema)
    if value is None and schema.get("nullable"):
        return
    if wanted and found not in wanted and not (found == "integer" and "number" in wanted):
        told = ",".join(wanted)
        yield "FieldValueTypeInvalid", path, (
            f'Invalid value: "{found}": {_at(path)} must be of type {told}: "{found}"')
        return
    yield from _enumerated(schema, value, path)
    yield from _combined(schema, value, path)
    if isinstance(value, dict):
        yield from _object(schema, value, path, old)
    elif isinstance(value, list):
        yield from _list(schema, value, path, old)
    elif isinstance(value, str):
        yield from _string(schema, value, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number(schema, value, path)
    yield from _ruled(schema, value, path, old)


def _ruled(schema: Schema, value: Any, path: str, old: Any) -> Iterator[Cause]:
    for rule in schema.get("x-kubernetes-validations") or ():
        holds = cel.compile_rule(rule["rule"])
        if holds is None or (old is _ABSENT and "oldSelf" in rule["rule"]):
            continue
        scope = {"self": value} if old is _ABSENT else {"self": value, "oldSelf": old}
        try:
            if holds(scope):
                continue
            told = rule.get("message") or f"failed rule: {rule['rule'].strip()}"
        except cel.EvaluationError as error:
            told = f"rule: {rule['rule'].strip()}: {error}"
        yield rule.get("reason", "FieldValueInvalid"), path + rule.get("fieldPath", ""), f"Invalid value: {_shown(value)}: {told}"


def _types(schema: Schema) -> list[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return {int: "integer", str: "string", list: "array", dict: "object"}[type(value)]


def _at(path: str) -> str:
    return f"{path} in body" if path else "in body"


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (str, bool, dict, list)) or value is None else str(value)


def _invalid(path: str, value: Any, rule: str) -> Cause:
    return "FieldValueInvalid", path, f"Invalid value: {_shown(value)}: {_at(path)} {rule}"


def _enumerated(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        listed = ", ".join(_shown(item) for item in allowed)
        yield "FieldValueNotSupported", path, f"Unsupported value: {_shown(value)}: supported values: {listed}"


def _combined(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    for inner in schema.get("allOf") or ():
        yield from violations(inner, value, path)
    for name, rule in (("anyOf", "must validate at least one schema (anyOf)"),
                       ("oneOf", "must validate one and only one schema (oneOf). Found none valid")):
        options = schema.get(name)
        if not options:
            continue
        fitting = sum(not any(True for _ in violations(inner, value, path)) for inner in options)
        if not fitting:
            yield _invalid(path, value, rule)
        elif name == "oneOf" and fitting > 1:
            yield _invalid(path, value, f"must validate one and only one schema (oneOf). Found {fitting} valid alternatives")
    if schema.get("not") and not any(True for _ in violations(schema["not"], value, path)):
        yield _invalid(path, value, "must not validate the schema (not)")


def _object(schema: Schema, value: dict[str, Any], path: str, old: Any) -> Iterator[Cause]:
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    before = old if isinstance(old, dict) else {}
    for name in schema.get("required") or ():
        if name not in value:
            yield "FieldValueRequired", f"{path}.{name}" if path else name, "Required value"
    for name, item in value.items():
        inner = known.get(name, more if isinstance(more, dict) else None)
        if inner is not None:
            here = f"{path}.{name}" if path else name
            yield from violations(inner, item, here, before.get(name, _ABSENT))
    if len(value) < schema.get("minProperties", 0):
        yield _invalid(path, value, f"should have at least {schema['minProperties']} properties")
    if len(value) > schema.get("maxProperties", len(value)):
        yield ("FieldValueTooMany", path,
               f"Too many: {len(value)}: must have at most {schema['maxProperties']} items")


def _list(schema: Schema, value: list[Any], path: str, old: Any) -> Iterator[Cause]:
    if len(value) < schema.get("minItems", 0):
        yield _invalid(path, value, f"should have at least {schema['minItems']} items")
    if len(value) > schema.get("maxItems", len(value)):
        yield "FieldValueTooMany", path, f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
    before = old if isinstance(old, list) else []
    for place, item in enumerate(value):
        earlier = before[place] if place < len(before) else _ABSENT
        yield from violations(schema.get("items") or {}, item, f"{path}[{place}]", earlier)
    yield from _duplicates(schema, value, path)


def _duplicates(schema: Schema, value: list[Any], path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    seen: set[str] = set()
    for place, item in enumerate(value):
        identity = item
        if kind == "map" and isinstance(item, dict):
            identity = {key: item[key] for key in schema.get("x-kubernetes-list-map-keys") or () if key in item}
        told = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        if told in seen:
            yield "FieldValueDuplicate", f"{path}[{place}]", f"Duplicate value: {told}"
        seen.add(told)


def _string(schema: Schema, value: str, path: str) -> Iterator[Cause]:
    if len(value) < schema.get("minLength", 0):
        yield _invalid(path, value, f"should be at least {schema['minLength']} chars long")
    if len(value) > schema.get("maxLength", len(value)):
        yield "FieldValueTooLong", path, f"Too long: may not be more than {schema['maxLength']} bytes"
    pattern = schema.get("pattern")
    if pattern and not _compiled(pattern).search(value):
        yield _invalid(path, value, f"should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_moment(value):
        yield _invalid(path, value, f"must be of type date-time: {_shown(value)}")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_moment(value: str) -> bool:
    try:
        return "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _number(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (value == low and schema.get("exclusiveMinimum"))):
        more = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _invalid(path, value, f"should be {more} {low}")
    if high is not None and (value > high or (value == high and schema.get("exclusiveMaximum"))):
        less = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _invalid(path, value, f"should be {less} {high}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield _invalid(path, value, f"should be a multiple of {step}")
    bounds = _RANGES.get(schema.get("format", ""))
    if bounds and not bounds[0] <= value <= bounds[1]:
        yield _invalid(path, value, f"must be of type {schema['format']}: {_shown(value)}")
