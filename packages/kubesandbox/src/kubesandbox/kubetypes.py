"""The built-in types' fields, and how the API server reads JSON into them.

A real API server decodes a request into Go structs and encodes these again, so what it stores differs from what it was
sent: unknown fields and nulls are gone, empty optional values are left out unless their field is a pointer, and required
ones are written with their zero value. `data/kubetypes.json` holds the facts per field (`tools/kubetypes` makes it).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, quantities

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]
Path = tuple[Any, ...]
"""Where a value is: (path of the parent, field name or list index), outermost first."""

_GO_TYPES: Final = {"string": "string", "integer": "int32", "boolean": "bool", "number": "float64"}
_EXACT: Final = {"string": str, "bytes": str, "boolean": bool, "integer": int}
"""Scalars that are taken as they are when their JSON type is this one."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_ZEROS: Final[dict[str, Any]] = {
    "string": "", "integer": 0, "boolean": False, "number": 0, "quantity": "0", "intorstring": 0, "any": None,
    "time": None, "microtime": None, "bytes": None,
}


class Reading:
    """Collect what one decoding came across."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        """Paths of fields that the type does not have, such as `spec.containers[0].comand`."""


@dataclass(frozen=True, slots=True)
class Field:
    """Describe a field of a built-in type."""

    type: str
    """A scalar's name, another type's name, or one of these behind `[]` (list) or `{}` (map by string)."""
    keeps: str
    """`?`: left out when zero; `*`: a pointer, left out when null; `!`: always written."""
    merge_key: str | None = None
    merges: bool = False
    """Whether a strategic merge patch merges the list instead of replacing it."""
    replaces_keys: bool = False
    replaces: bool = False

    def is_always_there(self, name: str) -> bool:
        """Tell whether the field is written even when it is empty; Go's `omitempty` does not leave out times, `omitzero` does."""
        return self.keeps == "!" or (self.keeps == "?" and self.type in ("time", "microtime") and name != "creationTimestamp")

    @property
    def element(self) -> str:
        """Return the type of a list's or map's elements, or the type itself."""
        return self.type[2:] if self.type[:2] in ("[]", "{}") else self.type


@cache
def fields(type_name: str) -> dict[str, Field] | None:
    """Return a type's fields by JSON name, or None for a scalar."""
    raw = _load().get(type_name)
    if raw is None:
        return None
    return {name: _field(text) for name, text in raw.items() if not name.startswith("@")}


@cache
def numbers(type_name: str) -> dict[int, tuple[str, str]]:
    """Return a type's fields by their number in protobuf, as (JSON name, type); `@N` names what JSON inlines."""
    found: dict[int, tuple[str, str]] = {}
    for name, text in _load().get(type_name, {}).items():
        number = name[1:] if name.startswith("@") else text.partition("|")[0].partition("#")[2]
        if number:
            found[int(number)] = (name, _field(text).type)
    return found


@cache
def type_of(group: str, kind: str) -> str | None:
    """Return the name of a kind's type (`apps.v1.DaemonSet`), or None when it is not built in."""
    folder = group.split(".")[0] or "core"
    name = f"{folder}.v1.{kind}"
    return name if name in _load() else None


@cache
def decoder(type_name: str) -> Callable[[Any, Path, Reading], Any]:
    """Return the function that reads a JSON value as a type; it raises `errors.BadRequest` for a value of another type."""
    if type_name.startswith("[]"):
        return _list(type_name[2:])
    if type_name.startswith("{}"):
        return _map(type_name[2:])
    return _SCALARS[type_name] if type_name in _SCALARS else _struct(type_name)


def written(path: Path) -> str:
    """Write a path as error messages do: `spec.containers[0].image`."""
    parts: list[str] = []
    while path:
        path, step = path
        parts.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(parts)).removeprefix(".")


@cache
def _load() -> dict[str, dict[str, str]]:
    text = (resources.files("kubesandbox") / "data" / "kubetypes.json").read_text("utf-8")
    loaded: dict[str, dict[str, str]] = json.loads(text)
    return loaded


def _field(text: str) -> Field:
    head, *strategies = text.split("|")
    head = head.partition("#")[0]
    merge = next((s for s in strategies if s.startswith("merge")), None)
    return Field(head[:-1], head[-1], merge_key=merge[6:] or None if merge else None, merges=merge is not None,
                 replaces_keys="replaceKeys" in strategies, replaces="replace" in strategies)


class Mismatch(errors.BadRequest):
    """Refuse a value of another type than its field's, as Go's JSON decoder words it: innermost struct, names of all fields."""

    def __init__(self, found: str, wanted: str, struct: str = "", names: tuple[str, ...] = ()) -> None:
        place = f"struct field {struct}.{'.'.join(names)}" if struct else "value"
        super().__init__(f"json: cannot unmarshal {found} into Go {place} of type {wanted}")
        self._parts = (found, wanted)
        self._struct = struct
        self._names = names

    def within(self, struct: str, name: str) -> Mismatch:
        """Return the same as seen from a struct around the value."""
        return Mismatch(*self._parts, self._struct or struct.rpartition(".")[2], (name, *self._names))


def _refuse(value: Any, wanted: str) -> Mismatch:
    found = {str: "string", bool: "bool", dict: "object", list: "array"}.get(type(value), "number")
    # Go says the package, which is `v1` for all of them.
    return Mismatch(found, re.sub(r"\w+\.(?=v1\.)", "", wanted))


def _struct(type_name: str) -> Callable[[Any, Path, Reading], Any]:
    known = fields(type_name) or {}
    always = [name for name, field in known.items() if field.is_always_there(name)]
    readers: dict[str, tuple[Callable[[Any, Path, Reading], Any], bool, type | None]] = {}

    def decode(value: Any, path: Path, reading: Reading) -> Object:
        if type(value) is not dict:
            raise _refuse(value, type_name)
        if not readers:
            # A type may contain itself, so its fields' decoders are looked up at the first use.
            readers.update({name: (decoder(field.type), field.keeps == "?", _EXACT.get(field.type))
                            for name, field in known.items()})
        result: Object = {}
        name = ""
        try:
            for name, item in value.items():
                reader = readers.get(name)
                if reader is None:
                    reading.unknown.append(written((path, name)))
                elif item is not None:
                    read = item if type(item) is reader[2] else reader[0](item, (path, name), reading)
                    if read or not reader[1]:
                        result[name] = read
        except Mismatch as error:
            raise error.within(type_name, name) from None
        return {**result, **{name: zero(known[name].type) for name in always if name not in result}}

    return decode


def zero(type_name: str) -> Any:
    """Return what Go writes for a type's zero value."""
    if type_name[:2] in ("[]", "{}"):
        return None
    if type_name in _ZEROS:
        return _ZEROS[type_name]
    return {name: zero(field.type) for name, field in (fields(type_name) or {}).items() if field.is_always_there(name)}


def _list(element: str) -> Callable[[Any, Path, Reading], Any]:
    def decode(value: Any, path: Path, reading: Reading) -> list[Any]:
        if type(value) is not list:
            raise _refuse(value, "[]" + element)
        if element == "string" and all(type(item) is str for item in value):
            return value.copy()
        one = decoder(element)
        return [one(item, (path, place), reading) if item is not None else zero(element)
                for place, item in enumerate(value)]

    return decode


def _map(element: str) -> Callable[[Any, Path, Reading], Any]:
    def decode(value: Any, path: Path, reading: Reading) -> Object:
        if type(value) is not dict:
            raise _refuse(value, "map[string]" + element)
        if element == "string" and all(type(item) is str for item in value.values()):
            return dict(value)
        one = decoder(element)
        return {name: one(item, (path, name), reading) if item is not None else zero(element)
                for name, item in value.items()}

    return decode


def _plain(name: str, *types: type) -> Callable[[Any, Path, Reading], Any]:
    def decode(value: Any, path: Path, reading: Reading) -> Any:
        del reading
        if type(value) not in types:
            raise _refuse(value, _GO_TYPES.get(name, name))
        return value

    return decode


def _integer(value: Any, path: Path, reading: Reading) -> int:
    del reading
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise _refuse(value, "int32")
    return value


def _quantity(value: Any, path: Path, reading: Reading) -> str:
    del reading
    if type(value) not in (str, int, float):
        raise _refuse(value, "resource.Quantity")
    try:
        return quantities.canonical(value)
    except ValueError as error:
        raise errors.BadRequest(f"{written(path)}: {error}") from None


def _time(value: Any, path: Path, reading: Reading) -> str:
    del reading
    return _moment(value, path, "%Y-%m-%dT%H:%M:%SZ")


def _microtime(value: Any, path: Path, reading: Reading) -> str:
    del reading
    return _moment(value, path, "%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(value: Any, path: Path, form: str) -> str:
    if type(value) is not str:
        raise _refuse(value, "v1.Time")
    if _TIME.fullmatch(value) and len(value) == (20 if form.endswith("SZ") else 27):
        return value
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime(form)
    except ValueError:
        raise errors.BadRequest(
            f'{written(path)}: parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None


def _anything(value: Any, path: Path, reading: Reading) -> Any:
    del path, reading
    return value


_SCALARS: Final[dict[str, Callable[[Any, Path, Reading], Any]]] = {
    "string": _plain("string", str), "bytes": _plain("bytes", str), "boolean": _plain("boolean", bool),
    "number": _plain("number", int, float), "intorstring": _plain("intstr.IntOrString", int, str), "integer": _integer,
    "quantity": _quantity, "time": _time, "microtime": _microtime, "any": _anything,
}
