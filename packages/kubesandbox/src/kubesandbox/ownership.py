"""Server-side apply: which manager owns which field, what an apply changes, and when it is refused.

Fields are named as `metadata.managedFields` names them (FieldsV1): `f:<name>`, `k:<keys of a list's item>`, `v:<value of a set>`;
a path is a tuple of such steps. Ownership is kept from an object's first apply on; what was there before then belongs to
`before-first-apply`, as with objects from before Kubernetes knew of managers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, patch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubesandbox.shapes import Shape

Object = dict[str, Any]
Path = tuple[str, ...]
_MISSING: Final = object()
BEFORE: Final = "before-first-apply"
_UNOWNED: Final = frozenset({
    ("f:apiVersion",), ("f:kind",), *(("f:metadata", f"f:{name}") for name in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
        "deletionGracePeriodSeconds", "managedFields", "generateName", "selfLink"))})


@dataclass(frozen=True, slots=True)
class Manager:
    """Say who writes, how (Apply or Update), in which version, and when (RFC 3339)."""

    name: str
    operation: str
    api_version: str
    time: str


def leaves(shape: Shape, value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every field that an object sets, each as deep as it can be owned."""
    if at in _UNOWNED:
        return
    steps = [] if shape.is_atomic else list(_steps(shape, value))
    if not steps and at:
        yield at
    for step, inner, item in steps:
        if step.startswith("k:"):
            yield (*at, step, ".")
        yield from leaves(inner, item, (*at, step))


def _steps(shape: Shape, value: Any) -> Iterator[tuple[str, Shape, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"f:{name}", shape.field(name), item
    elif isinstance(value, list) and shape.keys:
        for item in value:
            yield _key(shape, item), shape.element(), item
    elif isinstance(value, list) and shape.is_set:
        for item in value:
            yield f"v:{_text(item)}", shape.element(), item


def _key(shape: Shape, item: Any) -> str:
    if not isinstance(item, dict) or any(name not in item for name in shape.keys):
        raise errors.BadRequest(f"element of a list lacks its key: {', '.join(shape.keys)}")
    return "k:" + _text({name: item[name] for name in sorted(shape.keys)})


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def find(shape: Shape, value: Any, path: Path) -> Any:
    """Return what is at a path, or a mark of its own when there is nothing."""
    for step in path:
        if step == ".":
            return True
        found = next(((inner, item) for name, inner, item in _steps(shape, value) if name == step), None)
        if found is None:
            return _MISSING
        shape, value = found
    return value


def without(shape: Shape, value: Any, path: Path) -> Any:
    """Return a copy without what is at a path."""
    step, *rest = path
    last = not rest or rest == ["."]
    if isinstance(value, dict):
        name = step[2:]
        if name not in value:
            return value
        if last:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: without(shape.field(name), value[name], tuple(rest))}
    if not isinstance(value, list):
        return value
    named = list(_steps(shape, value))
    if last:
        return [item for found, _, item in named if found != step]
    return [without(inner, item, tuple(rest)) if found == step else item for found, inner, item in named]


def merge(shape: Shape, live: Any, wanted: Any) -> Any:
    """Return the live value with everything that an apply sets."""
    if isinstance(wanted, dict) and isinstance(live, dict) and not shape.is_atomic:
        return {**live, **{name: merge(shape.field(name), live.get(name), item) for name, item in wanted.items()}}
    if isinstance(wanted, list) and isinstance(live, list) and (shape.keys or shape.is_set):
        have = {step: item for step, _, item in _steps(shape, live)}
        for step, inner, item in _steps(shape, wanted):
            have[step] = merge(inner, have.get(step), item)
        return list(have.values())
    return wanted


def read(entries: list[Object] | None) -> dict[tuple[str, str], tuple[Object, set[Path]]]:
    """Return the entries of managedFields with their paths, by manager and operation."""
    return {(one["manager"], one["operation"]): (one, set(_paths(one.get("fieldsV1") or {}))) for one in entries or ()}


def _paths(fields: Object, at: Path = ()) -> Iterator[Path]:
    for step, inner in fields.items():
        if step == "." or not inner:
            yield (*at, step)
        else:
            yield from _paths(inner, (*at, step))


def _fields(paths: set[Path]) -> Object:
    root: Object = {}
    for path in sorted(paths):
        place = root
        for step in path:
            place = place.setdefault(step, {})
    return root


def write(owned: dict[tuple[str, str], tuple[Object, set[Path]]]) -> list[Object]:
    """Return managedFields; who owns nothing any more is left out."""
    return [{**entry, "fieldsType": "FieldsV1", "fieldsV1": _fields(paths)} for entry, paths in owned.values() if paths]


def _entry(who: Manager) -> Object:
    return {"manager": who.name, "operation": who.operation, "apiVersion": who.api_version, "time": who.time}


def apply(shape: Shape, live: Object | None, wanted: Object, who: Manager, *, force: bool) -> tuple[Object, list[Object]]:
    """Return the object after an apply, and its managedFields.

    Raises `errors.Conflict` when it changes what others own and `force` is not set.
    """
    base = live or {}
    owned = read(base.get("metadata", {}).get("managedFields"))
    if live is not None and not owned:
        first = Manager(BEFORE, "Update", who.api_version, who.time)
        owned[BEFORE, "Update"] = _entry(first), set(leaves(shape, {key: item for key, item in live.items() if key != "status"}))
    me = (who.name, "Apply")
    mine = set(leaves(shape, wanted))
    foreign = _foreign(shape, base, wanted, mine, {key: paths for key, (_, paths) in owned.items() if key != me})
    if foreign and not force:
        raise _conflict(foreign, who)
    for key, path in foreign:
        owned[key][1].discard(path)
    before = owned.pop(me, ({}, set()))
    others: set[Path] = set().union(*(paths for _, paths in owned.values())) if owned else set()
    result: Object = merge(shape, base, wanted)
    for path in _removals(before[1] - mine - others, mine | others):
        result = without(shape, result, path)
    same = before[1] == mine and before[0].get("apiVersion") == who.api_version
    owned[me] = (before[0] if same else _entry(who)), mine
    return result, write(owned)


def _removals(dropped: set[Path], kept: set[Path]) -> set[Path]:
    """Return what to take away for paths that nobody owns any more: an item of a list as a whole, never its key alone."""
    found: set[Path] = set()
    for path in dropped:
        items = [path[:end] for end in range(1, len(path)) if (*path[:end], ".") in dropped]
        whole = next((item for item in items if not any(one[:len(item)] == item for one in kept)), None)
        if whole is not None:
            found.add(whole)
        elif not _is_key(path) and not any(one[:len(path)] == path for one in kept):
            found.add(path)
    return found


def _is_key(path: Path) -> bool:
    return path[-1] == "." or (len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:]))


def _foreign(shape: Shape, live: Object, wanted: Object, mine: set[Path],
             others: dict[tuple[str, str], set[Path]]) -> list[tuple[tuple[str, str], Path]]:
    changed = {path for path in mine if path[-1] != "." and not patch.same(find(shape, live, path), find(shape, wanted, path))}
    return [(key, path) for key, paths in others.items() for path in sorted(paths & changed)]


def _conflict(foreign: list[tuple[tuple[str, str], Path]], who: Manager) -> errors.Conflict:
    causes = []
    for (name, operation), path in foreign:
        told = f'conflict with "{name}"' + ("" if operation == "Apply" else f" using {who.api_version}")
        causes.append({"reason": "FieldManagerConflict", "message": told, "field": _shown(path)})
    number = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    listed = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return errors.Conflict(f"Apply failed with {number}: {listed}", details={"causes": causes})


def _shown(path: Path) -> str:
    parts = []
    for step in path:
        if step.startswith("f:"):
            parts.append("." + step[2:])
        elif step.startswith("k:"):
            parts.append("[" + ",".join(f"{name}={_text(value)}" for name, value in json.loads(step[2:]).items()) + "]")
        elif step != ".":
            parts.append(f"[={step[2:]}]")
    return "".join(parts)


def after_update(shape: Shape, old: Object, new: Object, who: Manager) -> list[Object]:
    """Return managedFields after a write that is no apply: what it has changed is the writer's, what it has removed nobody's."""
    owned = read(old["metadata"].get("managedFields"))
    before, after = set(leaves(shape, old)), set(leaves(shape, new))
    changed = {path for path in after if path[-1] != "." and not patch.same(find(shape, old, path), find(shape, new, path))}
    for key, (_, paths) in owned.items():
        paths -= before - after
        if key != (who.name, who.operation):
            paths -= changed
    if changed:
        known = owned.get((who.name, who.operation), ({}, set()))[1]
        owned[who.name, who.operation] = _entry(who), known | changed
    return write(owned)
