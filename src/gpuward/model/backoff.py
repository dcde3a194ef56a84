"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from typing import Final

_DOUBLINGS: Final = 30
"""More than any delay takes to get to its longest; what fails for a day would overflow the power."""
_UNSTEADY: Final = 1.0
"""Seconds by which a clock may go back that is but corrected a little; a float is no exact time either."""


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures in a row: `first`, doubled with each more, up to `longest`."""
    doublings = min(max(failures - 1, 0), _DOUBLINGS)
    return float(min(first * 2.0 ** doublings, longest))


def is_to_come(at: float, now: float) -> bool:
    """Tell whether a time that was noted is to come, as the clock was set back since; a little of that counts for nothing."""
    return at > now + _UNSTEADY
