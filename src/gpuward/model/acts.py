"""What people are told about a reason."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Act(StrEnum):
    """Say whether somebody has to act."""

    YES = "Yes"
    ROLLOUT = "Yes: it holds every node that has not begun"
    WISH = "No, it is as somebody wants it"
    LATER = "Not yet: it ends by itself, or becomes a failure at its deadline"
    NO = "No, it ends by itself"


class Advice(NamedTuple):
    """Hold what to tell about one reason."""

    act: Act
    means: str
    do: str
