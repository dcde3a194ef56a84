"""Columns of the API server's tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one column; those with a priority above 0 are shown by `-o wide` only."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def definition(self) -> Object:
        """Return the column as a Table lists it."""
        form = "name" if self.name == "Name" and not self.format else self.format
        return {"name": self.name, "type": self.type, "format": form, "priority": self.priority,
                "description": self.description}


def columns(*names: str, wide: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Return columns by name; `#` in front makes one a number."""
    narrow = [Column(name.lstrip("#"), "integer" if name.startswith("#") else "string") for name in names]
    return (*narrow, *(Column(name, priority=1) for name in wide))


def selector(labels: Object | None) -> str:
    """Write labels as `a=b,c=d`, or `<none>`."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"
