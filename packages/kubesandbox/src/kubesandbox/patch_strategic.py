"""Strategic merge patches: lists merge by the keys that the built-in types declare.

The directives are those of Kubernetes' strategicpatch package: `$patch` (replace, delete, merge), `$retainKeys`,
`$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`. Results share unchanged parts with the original.
"""

from __future__ import annotations

from typing import Any, Final

from kubesandbox import errors, kubetypes
from kubesandbox.kubetypes import Field

Object = dict[str, Any]

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def apply(type_name: str, original: Object, patch: Any) -> Object:
    """Apply a strategic merge patch to an object of a built-in type; raise `errors.BadRequest` for a malformed one."""
    if not isinstance(patch, dict):
        raise errors.BadRequest("json: cannot unmarshal array into Go value of type map[string]interface {}")
    return _merge_object(type_name, original, patch)


def _merge_object(type_name: str, original: Object, patch: Object) -> Object:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise errors.BadRequest(f"Unknown patch type found: {directive}")
    result = dict(original)
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        else:
            field = _field(type_name, name)
            result[name] = _merge_value(field, result.get(name), value, patch.get(_ORDER + name))
    _trim_lists(type_name, result, patch)
    return result


def _field(type_name: str, name: str) -> Field:
    if type_name.startswith("{}"):
        return Field(type_name[2:], "?")
    return (kubetypes.fields(type_name) or {}).get(name) or Field("any", "?")


def _trim_lists(type_name: str, result: Object, patch: Object) -> None:
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            result[field] = [item for item in result.get(field) or () if item not in value]
        elif name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            # Elements only move when the list itself is not in the patch; otherwise merging has put them in order.
            if field not in patch and result.get(field):
                key = _field(type_name, field).merge_key
                result[field] = _ordered(result[field], value, result[field], key)


def _merge_value(field: Field, old: Any, new: Any, order: list[Any] | None) -> Any:
    if isinstance(new, dict):
        if field.replaces:
            return new
        return _merge_object(field.type, old if isinstance(old, dict) else {}, new)
    if isinstance(new, list) and field.merges:
        return _merge_list(field, old if isinstance(old, list) else [], new, order)
    return new


def _merge_list(field: Field, old: list[Any], new: list[Any], order: list[Any] | None) -> list[Any]:
    if field.merge_key is None:
        union = [*old, *(item for item in new if item not in old)]
        return _ordered(union, order if order is not None else new, old, None)
    key = field.merge_key
    removed = [_key_of(item, key) for item in new if item.get(_PATCH) == "delete"]
    plain = [item for item in new if item.get(_PATCH) in (None, "merge") or (len(item) > 1 and item[_PATCH] == "replace")]
    if any(item.get(_PATCH) == "replace" and len(item) == 1 for item in new):
        return [_merge_object(field.element, {}, item) for item in plain]
    merged = [item for item in old if item.get(key) not in removed]
    for item in plain:
        value = _key_of(item, key)
        place = next((n for n, have in enumerate(merged) if have.get(key) == value), None)
        if place is None:
            merged.append(_merge_object(field.element, {}, item))
        else:
            merged[place] = _merge_object(field.element, merged[place], item)
    return _ordered(merged, order if order is not None else plain, old, key)


def _key_of(item: Any, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:
        raise errors.BadRequest(f"map: {item} does not contain declared merge key: {key}")
    return item[key]


def _ordered(items: list[Any], patch_order: list[Any], server_order: list[Any], key: str | None) -> list[Any]:
    """Put the patch's items in the patch's order and weave the others in where the stored order allows."""
    def name(item: Any) -> Any:
        return item.get(key) if key is not None and isinstance(item, dict) else item

    wanted = [name(item) for item in patch_order]
    stored = [name(item) for item in server_order]
    ours = sorted((item for item in items if name(item) in wanted), key=lambda item: wanted.index(name(item)))
    others = [item for item in items if name(item) not in wanted]
    result: list[Any] = []
    while ours and others:
        one, other = name(ours[0]), name(others[0])
        before = one in stored and other in stored and stored.index(other) < stored.index(one)
        result.append(others.pop(0) if before else ours.pop(0))
    return result + ours + others
