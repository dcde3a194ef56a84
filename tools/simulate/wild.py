"""Values that nobody expects: drawn from the type of what they take the place of."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.model.record import CordonOwner
from gpuward.model.states import State

Object = dict[str, Any]

ABSURD_TIMES: Final = (
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
    "1969-12-31T23:59:59Z", "2106-02-07T06:28:16.123456789Z", "yesterday", "", "2026-02-30T00:00:00Z", "2026-01-01", "-1",
    "99999999999999999999", "NaN", "1e400")
TEXTS: Final = (
    "", "true", "false", "True", "null", "0", "-1", "a" * 4000, "ü€😀", "\u0000\u001b[31m", "'; DROP TABLE", "../../etc/passwd",
    "{}", "[]", '"', "\n", "gpuward", "other")
LABELS: Final = (
    "", "true", "false", "TRUE", "0", "nonsense", "a" * 63, "x.y-z_0", *map(str, filter(None, State)))
DEEP: Final = 100_000
"""How deep a document may be nested that somebody writes into an annotation; annotations hold 256 KiB."""


def record(random: Random) -> str:
    """Return a node's memory of an upgrade as nobody would write it: right fields, with wild values of their types."""
    choices: dict[str, tuple[Any, ...]] = {
        "state": (*map(str, State), "nonsense", 3, None),
        "since": (*ABSURD_TIMES, 0, None), "started": (*ABSURD_TIMES, None),
        "pods": ([], ["a"] * 3, "a", None, [None]), "target": (*TEXTS, 7),
        "cordon": (*map(str, CordonOwner), "nobody", None), "forced": (True, False, "true", 1),
        "failure": (None, {}, _failure(random), _failure(random)), "paused": (*ABSURD_TIMES, None),
        "restart": TEXTS, "returns": (0, -1, 5, 2**70, "3", 1.5), "lifted": (0, -1, 5, 2**70, "3", 1.5)}
    fields = random.sample(sorted(choices), random.randint(1, len(choices)))
    found = {field: random.choice(choices[field]) for field in fields}
    if random.random() < 0.7:  # most of it well-formed, so that it is read as far as the wild part
        found |= {"state": str(random.choice([state for state in State if state])), "since": random.choice(ABSURD_TIMES[:6])}
    return msgspec.json.encode(found if all(_fits(value) for value in found.values()) else str(found)).decode()


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or -2**63 <= value < 2**63


def _failure(random: Random) -> Object:
    return {"state": str(random.choice(list(State))), "cause": random.choice(TEXTS), "at": random.choice(ABSURD_TIMES[:6]),
            "attempts": random.choice((0, 1, -1, 10**9)), "first": random.choice(ABSURD_TIMES[:6])}


def text(random: Random) -> str:
    """Return a value for an annotation whatever its key."""
    kind = random.randrange(5)
    if kind == 0:
        return "[" * random.choice((10, 2_000, DEEP))
    if kind == 1:
        return '{"a":' * random.choice((10, 2_000, 20_000))
    if kind == 2:
        return record(random)
    return random.choice(ABSURD_TIMES if kind == 3 else TEXTS)


KEYS: Final = tuple(sorted({
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and value[-1:].isalnum()
    and "/" in value[1:] and not value.startswith(("/", names.NFD_PREFIX))}))
"""Every key of a label or an annotation that the operator reads or writes; discovery's own are discovery's to change."""
POLICY_NOTES: Final = (names.RESUMED_AT, names.VALID_UPGRADE_POLICY)
OBJECT_LABELS: Final = tuple(sorted({
    "app", names.REVISION_HASH, names.TEMPLATE_GENERATION, names.COMPONENT_LABEL, names.PART_OF_LABEL, names.PRECOMPILED,
    names.PRECOMPILED_KERNEL, names.NODE_OS, names.DRIVER_OS, names.DRIVER_KERNEL, names.OPERATOR_STATE, names.DRAIN_SKIP,
    names.UPGRADE_STATE, names.UPGRADE_SKIP}))
"""Labels that the operator, NVIDIA's or Kubernetes reads on driver pods and DaemonSets."""
OBJECT_NOTES: Final = tuple(sorted({names.APPLIED_HASH, names.MIRROR_POD, names.UPGRADE_RECORD, names.UPGRADE_REQUESTED}))
"""Annotations that are read there, or on other objects. (The API server itself refuses a number of the template that is none.)"""


def note(before: str, random: Random) -> str:
    """Return what somebody makes of an annotation that holds a JSON document: one of its values is another, or all of it."""
    try:
        document = msgspec.json.decode(before)
    except (msgspec.DecodeError, RecursionError):
        return text(random)
    if not isinstance(document, dict) or random.random() < 0.4:
        return text(random)
    places = _paths({"spec": document})
    at: Any = {"spec": document}
    path = random.choice(places or [("spec",)])
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = random.choice((_other(at[path[-1]], random), random.choice(TEXTS), 2**62, -1.5, None, [], {}))
    return msgspec.json.encode(document).decode()


def changed_somewhere(obj: Object, random: Random) -> str:
    """Change one place of an object, whatever there is, by the type of what is there; return what was done."""
    places = [path for path in _paths({key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "status")})
              if path[0] != "metadata" or (len(path) > 1 and path[1] in ("labels", "annotations", "ownerReferences"))]
    if not places:
        return "nothing"
    path = random.choice(places)
    at: Any = obj
    for step in path[:-1]:
        at = at[step]
    last = path[-1]
    if random.random() < 0.4:
        del at[last]
        return f"without {'.'.join(map(str, path))}"
    at[last] = _other(at[last], random)
    return f"{'.'.join(map(str, path))} = {str(at[last])[:40]!r}"


def _paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found: list[tuple[str | int, ...]] = []
    for step, inner in items:
        found += [(*at, step), *_paths(inner, (*at, step))] if (at or step in ("metadata", "spec", "data", "rules")) else []
    return [path for path in found if len(path) > 1 or path[0] not in ("metadata", "spec")]


def _other(value: Any, random: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((0, -1, value + 1, 2**31 - 1))
    if isinstance(value, str):
        return random.choice(("", "other", value + "x", value[:-1], "a" * 64))
    if isinstance(value, list):
        return value[:-1]
    return {}
