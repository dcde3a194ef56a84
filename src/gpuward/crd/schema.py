"""The structural OpenAPI schema of a type, as the API server wants it in a CustomResourceDefinition."""

from __future__ import annotations

import inspect
import types
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from gpuward.crd.descriptions import describe
from gpuward.crd.facts import DEFAULTED, REQUIRED, Schema

_SCALARS: Final[dict[object, str]] = {str: "string", int: "integer", bool: "boolean"}
_KEYWORDS: Final = (
    ("ge", "minimum"), ("le", "maximum"), ("pattern", "pattern"), ("min_length", "minLength"), ("max_length", "maxLength"),
)

_OF_LISTS: Final = {"minLength": "minItems", "maxLength": "maxItems"}


def schema_of(annotation: Any) -> Schema:
    """Return the schema of a field's type, with the facts that are attached to it.

    Raises:
        TypeError: the type has no counterpart in a CRD schema.
    """
    kind, metas = _unwrap(annotation)
    exact = next((meta.extra["schema"] for meta in metas if meta.extra and "schema" in meta.extra), None)
    described: Schema = dict(exact) if exact else _plain(kind)
    for meta in metas:
        described |= {keyword: getattr(meta, name) for name, keyword in _KEYWORDS if getattr(meta, name) is not None}
        described |= meta.extra_json_schema or {}
    if described.get("type") == "array":
        return {_OF_LISTS.get(keyword, keyword): value for keyword, value in described.items()}
    return described


def struct_schema(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema of a struct: its properties under their JSON names, in alphabetical order."""
    properties: dict[str, Schema] = {}
    required = []
    for field in sorted(msgspec.structs.fields(struct), key=lambda field: field.encode_name):
        _, metas = _unwrap(field.type)
        described = schema_of(field.type)
        if DEFAULTED in metas:
            described["default"] = msgspec.json.decode(msgspec.json.encode(field.default))
        if REQUIRED in metas or field.required:
            required.append(field.encode_name)
        if text := describe(struct, field.name) or described.get("description"):
            described["description"] = text
        properties[field.encode_name] = described
    whole: Schema = {"type": "object", "description": summary(struct), "properties": properties}
    return whole | ({"required": required} if required else {})


def summary(struct: type[msgspec.Struct]) -> str:
    """Return the first line of a struct's docstring."""
    return inspect.cleandoc(struct.__doc__ or "").partition("\n")[0]


def _unwrap(annotation: Any) -> tuple[Any, tuple[Meta, ...]]:
    """Peel `| None` and `Annotated` off a type; absent and null are one to the API server, so None adds no keyword."""
    if get_origin(annotation) is Annotated:
        inner, *metas = get_args(annotation)
        kind, deeper = _unwrap(inner)
        return kind, (*deeper, *(meta for meta in metas if isinstance(meta, Meta)))
    if get_origin(annotation) in (Union, types.UnionType):
        some = [part for part in get_args(annotation) if part is not type(None)]
        if len(some) == 1:
            return _unwrap(some[0])
    return annotation, ()


def _plain(kind: Any) -> Schema:
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return struct_schema(kind)
    parameters = get_args(kind)
    if get_origin(kind) is Literal:
        return {"type": "string", "enum": list(parameters)}
    if get_origin(kind) is tuple and parameters[1:] == (...,):
        return {"type": "array", "items": schema_of(parameters[0])}
    if get_origin(kind) is dict and parameters[0] is str:
        return {"type": "object", "additionalProperties": schema_of(parameters[1])}
    raise TypeError(f"no CRD schema for {kind!r}")


def without_descriptions(described: Any) -> Any:
    """Return a schema without its descriptions; a property that is named `description` stays."""
    if isinstance(described, list):
        return [without_descriptions(item) for item in described]
    if not isinstance(described, dict):
        return described
    return {
        key: {name: without_descriptions(value) for name, value in inner.items()} if key == "properties"
        else without_descriptions(inner)
        for key, inner in described.items() if key != "description"
    }
