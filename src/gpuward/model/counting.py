"""Sentences with counts: `{n:pod|pods}` in one is written as 1 pod, 2 pods."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Final

_FORMS: Final = re.compile(r"\{(\w+):[^|}]*\|([^}]*)\}")


ONCE: Final = "once"
"""What is written for 1 time."""


class _Counting(string.Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        one, either, many = format_spec.partition("|")
        if not either:
            return str(super().format_field(value, format_spec))
        return ONCE if value == 1 and one == "time" else f"{value} {one if value == 1 else many}"


_COUNTING: Final = _Counting()


def counted(text: str, arguments: Mapping[str, object]) -> str:
    """Return a sentence with its arguments, and of each count the form of the words that goes with it."""
    return _COUNTING.vformat(text, (), arguments)


def template(text: str) -> str:
    """Return a sentence for a page of documentation, with what it leaves open by name."""
    return _FORMS.sub(r"{\1} \2", text)
