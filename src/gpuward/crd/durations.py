"""Durations as text, as Go and `metav1.Duration` write them: 30m, 1h30m, 0s."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from gpuward.errors import InputError

_NUMBER: Final = r"([0-9]{1,6}(?:\.[0-9]{1,3})?)"
DURATION: Final = rf"^(?:0|(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?)$"
"""What a schema accepts, with a length of at least 1. The digits are limited so that no time leaves the calendar."""
DURATION_WISH: Final = "a duration such as 30s, 10m or 1h30m"

Duration: TypeAlias = Annotated[str, Meta(pattern=DURATION, min_length=1)]


def parse_duration(field: str, text: str, problem: type[InputError] = InputError) -> float:
    """Return the seconds of a duration; `field` is where it was written, for the message.

    Raises:
        InputError: the text is no duration; `problem` is the kind of it.
    """
    found = re.fullmatch(DURATION, text)
    if not text or found is None:
        raise problem(field, text, f"write {DURATION_WISH}")
    return sum(float(number) * unit for number, unit in zip(found.groups(), (3600.0, 60.0, 1.0), strict=True) if number)
