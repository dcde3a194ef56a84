"""Structural schemas of CustomResourceDefinitions: pruning of unknown fields and defaulting.

A schema is used as the CRD holds it (OpenAPI v3 with the `x-kubernetes-` extensions). Order as in the API server: unknown fields
go, nulls where null is not allowed go, defaults come; validation follows in `openapi_rules`.
"""

from __future__ import annotations

import json
from typing import Any, Final

Schema = dict[str, Any]

_TYPE_META: Final = frozenset({"apiVersion", "kind", "metadata"})


def prune(schema: Schema, value: Any, path: str, unknown: list[str], *, root: bool = False) -> Any:
    """Return a copy without the fields that the schema does not know; their paths are added to `unknown`."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [prune(items, item, f"{path}[{place}]", unknown) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields", False)
    embedded = root or schema.get("x-kubernetes-embedded-resource", False)
    result: dict[str, Any] = {}
    for name, item in value.items():
        here = f"{path}.{name}" if path else name
        if embedded and name in _TYPE_META:
            result[name] = item
        elif name in known:
            result[name] = prune(known[name], item, here, unknown)
        elif isinstance(more, dict):
            result[name] = prune(more, item, here, unknown)
        elif keeps or more is True:
            result[name] = item
        else:
            unknown.append(here)
    return result


def default(schema: Schema, value: Any) -> None:
    """Write the schema's defaults into an object, in place; a null that is not allowed counts as absent."""
    if isinstance(value, list):
        for item in value:
            default(schema.get("items") or {}, item)
    if not isinstance(value, dict):
        return
    known = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    for name in list(value):
        inner = known.get(name, more if isinstance(more, dict) else None)
        if inner is not None and value[name] is None and not inner.get("nullable"):
            del value[name]
    for name, inner in known.items():
        if "default" in inner and name not in value:
            value[name] = json.loads(json.dumps(inner["default"]))
    for name, item in value.items():
        default(known.get(name, more if isinstance(more, dict) else {}), item)
