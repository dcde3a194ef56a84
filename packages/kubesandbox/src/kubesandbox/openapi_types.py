"""The OpenAPI schemas of the built-in types, from the table of their fields; without descriptions."""

from __future__ import annotations

from typing import Any, Final

from kubesandbox import kubetypes

Object = dict[str, Any]

_SCALARS: Final[dict[str, Object]] = {
    "string": {"type": "string"}, "bytes": {"type": "string", "format": "byte"}, "boolean": {"type": "boolean"},
    "integer": {"type": "integer"}, "number": {"type": "number"}, "quantity": {"type": "string"},
    "intorstring": {"x-kubernetes-int-or-string": True}, "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def name_of(type_name: str) -> str:
    """Return the name under which a type stands in a document: `io.k8s.apps.v1.DaemonSet`."""
    return f"io.k8s.{type_name}"


def collect(type_name: str, into: Object) -> None:
    """Put the schema of a type, and of every type that it is made of, into a document's schemas."""
    name = name_of(type_name)
    known = kubetypes.fields(type_name)
    if name in into or known is None:
        return
    properties: Object = {}
    into[name] = {"type": "object", "properties": properties}
    for field_name, field in known.items():
        properties[field_name] = _property(field)
        collect(_innermost(field.type), into)


def _property(field: kubetypes.Field) -> Object:
    schema = dict(_schema(field.type))
    if field.merges:
        schema["x-kubernetes-patch-strategy"] = "merge"
    if field.merge_key:
        schema["x-kubernetes-patch-merge-key"] = field.merge_key
    return schema


def _schema(type_name: str) -> Object:
    if type_name.startswith("[]"):
        return {"type": "array", "items": _schema(type_name[2:])}
    if type_name.startswith("{}"):
        return {"type": "object", "additionalProperties": _schema(type_name[2:])}
    return _SCALARS.get(type_name) or {"allOf": [{"$ref": f"#/components/schemas/{name_of(type_name)}"}]}


def _innermost(type_name: str) -> str:
    return _innermost(type_name[2:]) if type_name[:2] in ("[]", "{}") else type_name
