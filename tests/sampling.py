"""Which cases of what is enumerated are played: a sample, or all of them with `./dev test --whole`."""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Iterable

import pytest

WHOLE = os.environ.get("GPUWARD_WHOLE") == "1"


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that a sample does without, of tests with several parameters: each value of each of them is played.

    Which of the values meet is the same each time, by the names of the cases.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _values(item):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {case for cases in tests.values() for case in set(cases) - _sample(cases)}


def _sample(cases: list[pytest.Item]) -> set[pytest.Item]:
    found: set[pytest.Item] = set()
    drawn = sorted(cases, key=lambda case: crc32(case.nodeid.encode()))
    missing = set().union(*map(_values, cases))
    while missing:
        found.add(most := max(drawn, key=lambda case: len(_values(case) & missing)))
        missing -= _values(most)
    return found


def _values(case: pytest.Item) -> set[tuple[str, str]]:
    """Return which value each of its parameters has."""
    call = getattr(case, "callspec", None)
    return {(name, repr(value)) for name, value in call.params.items()} if call else set()
