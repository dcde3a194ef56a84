"""The part of JSONPath that printer columns use: fields, quoted fields, indexes, `[*]` and equality filters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

_STEP: Final = re.compile(r"""
    \.(?P<field>(?:\\.|[^.\[\\])+)
  | \[['"](?P<quoted>[^'"]+)['"]\]
  | \[(?P<index>-?\d+)\]
  | (?P<all>\[\*\])
  | \[\?\(@\.(?P<key>[\w.]+)\s*==\s*['"](?P<value>[^'"]*)['"]\)\]
""", re.VERBOSE)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    text = path.strip().removeprefix("{").removesuffix("}")
    text = text if text.startswith((".", "[")) else "." + text
    found = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"JSONPath {path!r} has something at {text[at:]!r} that is not understood")
        found.append(match)
        at = match.end()
    return tuple(found)


def find(path: str, obj: Any) -> list[Any]:
    """Return every value at a path, in order; raise ValueError for a path that is not understood."""
    values = [obj]
    for step in _steps(path):
        values = [item for value in values for item in _step(step, value)]
    return values


def _step(step: re.Match[str], value: Any) -> list[Any]:
    name = step["quoted"] or (re.sub(r"\\(.)", r"\1", step["field"]) if step["field"] else None)
    if name is not None:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if step["all"]:
        return list(value.values()) if isinstance(value, dict) else list(value or ())
    items = value if isinstance(value, list) else []
    if step["index"] is not None:
        place = int(step["index"])
        return [items[place]] if -len(items) <= place < len(items) else []
    return [item for item in items if str(next(iter(find("." + step["key"], item)), None)) == step["value"]]
