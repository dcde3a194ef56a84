"""JSON patches (RFC 6902) and JSON merge patches (RFC 7386), applied as kube-apiserver applies them.

Results share the parts that a patch leaves alone with the original, which is never changed.
The corner cases are those of the evanphx/json-patch v4 library, which kube-apiserver uses: a `test` without value, or with
null, passes where the key is absent; `replace` of an absent key adds it, `copy` of one copies a null; a path through a missing
parent is an error.
"""

from __future__ import annotations

from typing import Any

from kubesandbox import errors


class DoesNotApply(errors.Invalid):
    """Refuse a JSON patch whose operation does not fit the object; `cause` says which and why."""

    def __init__(self, cause: str) -> None:
        # The API server keeps the cause to itself and answers with this sentence.
        super().__init__("the server rejected our request due to an error in our request")
        self.cause = cause


def merge(original: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def apply_json(original: Any, patch: Any) -> Any:
    """Apply a JSON patch.

    Raises `errors.BadRequest` for what is no patch and `DoesNotApply` when an operation fails; then nothing is applied.
    """
    if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
        raise errors.BadRequest("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for operation in patch:
        original = _apply_one(original, operation)
    return original


def _apply_one(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise DoesNotApply("missing 'path'")
    value = operation.get("value")
    if kind == "test":
        return _test(document, path, value)
    if kind in ("add", "replace", "remove"):
        return _edit(document, _steps(path), kind, value, path)
    if kind in ("move", "copy"):
        source = operation.get("from")
        if not isinstance(source, str):
            raise DoesNotApply("missing 'from'")
        moved = _read(document, source)
        if kind == "move":
            document = _edit(document, _steps(source), "remove", None, source)
        return _edit(document, _steps(path), "add", moved, path)
    raise DoesNotApply(f"Unexpected kind: {kind}")


def _steps(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise DoesNotApply(f"doc is missing path: {path!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _test(document: Any, path: str, value: Any) -> Any:
    *parents, last = _steps(path) or [""]
    holder = document
    for step in parents:
        holder = _child(holder, step, path)
        if not isinstance(holder, (dict, list)):
            raise DoesNotApply(f"test operation for path {path}: missing path")
    if not path:
        found = document
    elif isinstance(holder, dict):
        found = holder.get(last)
    else:
        found = holder[_index(holder, last, path)]
    if not same(found, value):
        raise DoesNotApply(f"testing path {path} failed")
    return document


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _read(document: Any, path: str) -> Any:
    *parents, last = _steps(path) or [""]
    for step in parents:
        document = _child(document, step, path)
    return _child(document, last, path) if path else document


def _child(holder: Any, step: str, path: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(step)
    if isinstance(holder, list):
        return holder[_index(holder, step, path)]
    raise DoesNotApply(f"doc is missing path: {path}")


def _index(holder: list[Any], step: str, path: str) -> int:
    try:
        place = int(step)
    except ValueError:
        raise DoesNotApply(f"{path}: invalid array index {step!r}") from None
    if not -len(holder) <= place < len(holder):
        raise DoesNotApply(f"{path}: Unable to access invalid index: {place}")
    return place


def _edit(document: Any, steps: list[str], kind: str, value: Any, path: str) -> Any:
    if not steps:
        if kind == "remove":
            raise DoesNotApply("cannot remove the whole document")
        return value
    step, *rest = steps
    if rest:
        inner = _child(document, step, path)
        if not isinstance(inner, (dict, list)):
            raise DoesNotApply(f'{kind} operation does not apply: doc is missing path: "{path}": missing value')
        edited = _edit(inner, rest, kind, value, path)
        return _with_item(document, _index(document, step, path) if isinstance(document, list) else step, edited)
    if isinstance(document, list):
        return _edit_list(document, step, kind, value, path)
    return _edit_object(document, step, kind, value, path)


def _with_item(document: Any, key: Any, value: Any) -> Any:
    if isinstance(document, list):
        result = list(document)
        result[key] = value
        return result
    return {**document, key: value}


def _edit_object(document: dict[str, Any], key: str, kind: str, value: Any, path: str) -> dict[str, Any]:
    if kind == "remove" and key not in document:
        raise DoesNotApply(f'{kind} operation does not apply: doc is missing key: {path}: missing value')
    if kind == "remove":
        return {name: item for name, item in document.items() if name != key}
    return {**document, key: value}


def _edit_list(document: list[Any], step: str, kind: str, value: Any, path: str) -> list[Any]:
    result = list(document)
    if kind == "add":
        place = len(result) if step == "-" or step == str(len(result)) else _index(result, step, path)
        result.insert(place if place >= 0 else len(result) + 1 + place, value)
    elif kind == "remove":
        del result[_index(result, step, path)]
    else:
        result[_index(result, step, path)] = value
    return result
