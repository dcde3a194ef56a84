"""A page for each custom resource: every field with its type, its default and what it may be, from the types of `gpuward.crd`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, get_args

import msgspec

from gpuward.crd import sandboxes
from gpuward.crd.check import wish
from gpuward.crd.facts import Schema
from gpuward.crd.generate import CUSTOM_RESOURCES, CustomResource, object_schema
from gpuward.crd.schema import summary

_LIMITING: Final = ("enum", "minimum", "maximum", "pattern", "minLength", "maxLength", "minItems", "maxItems")
_UNUSED: Final = "Accepted and ignored: the Kata manager is no longer deployed."
_MARKDOWN: Final = {ord(character): f"&#{ord(character)};" for character in "|*_["}
_WORDS: Final = {"array": "list", "object": "object", "boolean": "true or false"}


class Field(NamedTuple):
    """Hold one field: where it is, its schema, its struct if it has one, and what gpuward takes where it is absent."""

    path: str
    schema: Schema
    struct: type[msgspec.Struct] | None
    usual: object
    required: bool


def pages() -> dict[str, str]:
    """Return the page of each custom resource, by its path below docs/."""
    return {f"reference/{resource.type.kind.lower()}.md": _page(resource) for resource in CUSTOM_RESOURCES}


def _page(resource: CustomResource) -> str:
    kind, properties = resource.type.kind, object_schema(resource.type)["properties"]
    structs = {field.name: _struct(field.type) for field in msgspec.structs.fields(resource.type)}
    fields = list(_fields(properties["spec"], structs["spec"], "spec"))
    sections = [field for field in fields if _is_section(field)]
    links = f"Sections: {', '.join(f'[{field.path[5:]}](#{field.path})' for field in sections)}."
    return "\n".join([
        f"# {kind}", "", "<!-- Made from the code: pytest tests/docs --rewrite-docs -->", "",
        f"{summary(resource.type)} It is `{resource.type.api_version}` and has no namespace.",
        f"`kubectl explain {kind.lower()}.spec` says the same on a terminal.", "",
        "A default in *italics* is what gpuward takes where the field is absent; the others are written into the object by the",
        "API server. `[]` stands for each item of a list, `.*` for each key of a map.", "",
        "## spec", "", properties["spec"]["description"], "", links, "",
        *_table([field for field in fields if not _is_section(field)], "spec"),
        *(line for field in sections for line in _section(field)),
        "", "## status", "", *_table(list(_fields(properties["status"], structs["status"], "status")), "status"), "",
    ])


def _section(field: Field) -> list[str]:
    unused = field.struct is not None and field.struct is sandboxes.KataManager
    said = _UNUSED if unused else _said(field)
    rows = _table(list(_fields(field.schema, field.struct, field.path)), field.path)
    return ["", f'## <a id="{field.path}"></a>{field.path}', "", said, "", *rows]


def _is_section(field: Field) -> bool:
    return "properties" in field.schema


def _fields(schema: Schema, struct: type[msgspec.Struct] | None, path: str) -> Iterator[Field]:
    """Yield the fields of an object, in the order of the schema."""
    known = {field.encode_name: field for field in msgspec.structs.fields(struct)} if struct else {}
    for name, part in schema.get("properties", {}).items():
        field = known.get(name)
        inner = _struct(field.type) if field else None
        usual = _usual(struct, field) if struct and field else None
        yield Field(f"{path}.{name}", part, inner, usual, name in schema.get("required", ()) and "default" not in part)


def _all(field: Field) -> Iterator[Field]:
    """Yield a field and all that is below it."""
    yield field
    for schema, mark in zip(_schemas(field), ("", "[]", ".*"), strict=True):
        for inner in _fields(schema, field.struct, field.path + mark):
            yield from _all(inner)


def _schemas(field: Field) -> tuple[Schema, Schema, Schema]:
    """Return the schema of a field, of its items and of its values."""
    values = field.schema.get("additionalProperties")
    return field.schema, field.schema.get("items", {}), values if isinstance(values, dict) else {}


def _table(fields: list[Field], above: str) -> list[str]:
    rows = [_row(found, above) for field in fields for found in _all(field)]
    return rows and ["| field | type | default | limits | meaning |", "|---|---|---|---|---|", *rows]


def _row(field: Field, above: str) -> str:
    name = field.path.removeprefix(f"{above}.")
    cells = (f'<a id="{field.path}"></a>{_code(name)}', _type(field.schema), _default(field), _limits(field), _said(field))
    return f"| {' | '.join(cells)} |"


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "number or string"
    kind = schema["type"]
    if kind == "array":
        return f"list of {_type(schema['items'])}s"
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict):
        return f"map of {_type(inner)}s"
    return _WORDS.get(kind, str(kind))


def _default(field: Field) -> str:
    if "default" in field.schema:
        return _code(json.dumps(field.schema["default"])) if not _is_section(field) else ""
    return f"*{_code(json.dumps(field.usual))}*" if field.usual not in (None, "", (), [], {}) else ""


def _limits(field: Field) -> str:
    found = ["required"] if field.required else []
    found += [_escaped(wish(one)) for one in _schemas(field) if any(key in one for key in _LIMITING)]
    found += [_escaped(rule["message"]) for rule in field.schema.get("x-kubernetes-validations", ())]
    return "; ".join(found)


def _said(field: Field) -> str:
    return _escaped(field.schema.get("description", "") or "As in Kubernetes.")


def _usual(struct: type[msgspec.Struct], field: Any) -> object:
    """Return what gpuward acts on where the field is absent and the schema has no default."""
    if field.name == "enabled" and field.default is None:
        return bool(getattr(struct, "enabled_by_default", False))
    value = None if field.default is msgspec.NODEFAULT else field.default
    return None if isinstance(value, msgspec.Struct) else msgspec.to_builtins(value)


def _struct(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a field's type, or an item of it, is."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((found for part in get_args(annotation) if (found := _struct(part))), None)


def _code(text: str) -> str:
    return f"<code>{_escaped(text)}</code>"


def _escaped(text: str) -> str:
    """Return text that a cell of a table shows as it is, on GitHub as on the site."""
    return html.escape(text, quote=False).translate(_MARKDOWN)
