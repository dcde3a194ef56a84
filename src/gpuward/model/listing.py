"""A few of many names, for people: a large fleet has more of them than anybody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

MOST_NAMED: Final = 3
"""Names that a sentence has at most."""


def some_of(found: Iterable[str]) -> tuple[str, ...]:
    """Return the first few names."""
    return tuple(sorted(found)[:MOST_NAMED])


def listed(found: Sequence[object], most: int = 10, *, of: int | None = None) -> str:
    """Return names for a sentence, and how many more there are: `of` all of them, where only some were found out."""
    left = (len(found) if of is None else of) - len(found[:most])
    return ", ".join(map(str, found[:most])) + (f" and {left} more" if left > 0 else "")


def all_of(found: Sequence[object]) -> str:
    """Return all names for a sentence: `a, b and c`."""
    names = [str(each) for each in found]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
