"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from typing import Final

_DOUBLINGS: Final = 30
"""More than any delay takes to get to its longest; what fails for a day would overflow the power."""


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after so many failures in a row: `first`, doubled with each more, up to `longest`."""
    doublings = min(max(failures - 1, 0), _DOUBLINGS)
    return float(min(first * 2.0 ** doublings, longest))
