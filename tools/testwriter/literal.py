"""Write values as the Python source that makes them, broken into lines as a person would."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from enum import Enum

import msgspec

from gpuward.errors import InputError
from gpuward.recording.digest import set_fields

WIDTH = 130


def quoted(text: str, quotes: str = '"') -> str:
    """Return the source of a string, in quotes of one's choice where nothing in it could end them."""
    return f"{quotes}{text}{quotes}" if text.isprintable() and not set(text) & {'"', "\\"} else ascii(text)


def _scalar(value: object) -> str:
    """Return the source of a value without parts. Raises InputError for one that no gpuward records."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, bool | int | float | bytes):
        return repr(value)
    raise InputError("FILE", type(value).__name__, "no recording of gpuward's holds such a value: name one that is")


class Literals:
    """Write values, and collect what has to be imported for them."""

    def __init__(self) -> None:
        self._used: dict[str, set[str]] = {}

    def use(self, module: str, name: str) -> None:
        """Import one more name."""
        self._used.setdefault(module, set()).add(name)

    def imports(self) -> str:
        """Return the import lines."""
        return "\n".join(self._import(module, sorted(names)) for module, names in sorted(self._used.items()))

    def text(self, value: object, before: str, indent: int = 0) -> str:
        """Return the source of a value that is written behind `before` on its line."""
        return self._value(value, len(before), indent)

    def _import(self, module: str, names: list[str]) -> str:
        line = f"from {module} import {', '.join(names)}"
        return line if len(line) <= WIDTH else f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"

    def _value(self, value: object, column: int, indent: int) -> str:
        flat = self._flat(value)
        opening, items, closing = self._items(value)
        if column + len(flat) <= WIDTH - 1 or not items:
            return flat
        inner = indent + 4
        lines = [f"{' ' * inner}{key}{self._value(item, inner + len(key), inner)},\n" for key, item in items]
        return f"{opening}\n{''.join(lines)}{' ' * indent}{closing}"

    def _flat(self, value: object) -> str:
        if isinstance(value, Enum):
            self.use(type(value).__module__, type(value).__name__)
            return f"{type(value).__name__}.{value.name}"
        opening, items, closing = self._items(value)
        if not closing:
            return _scalar(value)
        last = "," if isinstance(value, tuple) and len(items) == 1 else ""
        return opening + ", ".join(key + self._flat(item) for key, item in items) + last + closing

    def _items(self, value: object) -> tuple[str, list[tuple[str, object]], str]:
        """Return how a collection begins, its items each with what stands before it, and how it ends; nothing for a scalar."""
        if isinstance(value, msgspec.Struct):
            name = type(value).__name__
            self.use(type(value).__module__, name)
            return f"{name}(", [(f"{field}=", each) for field, each in set_fields(value).items()], ")"
        if isinstance(value, Mapping):
            return "{", [(f"{self._flat(key)}: ", each) for key, each in value.items()], "}"
        if isinstance(value, Set):
            ordered = sorted(value, key=str)
            return ("frozenset({", [("", each) for each in ordered], "})") if ordered else ("frozenset(", [], ")")
        if isinstance(value, tuple):
            return "(", [("", each) for each in value], ")"
        if isinstance(value, list):
            return "[", [("", each) for each in value], "]"
        return "", [], ""
