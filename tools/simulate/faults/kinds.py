"""The register of the kinds of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import World

End = Callable[[], None]
Play = Callable[["World", "Fault"], End | None]


class Kind(NamedTuple):
    """Hold a kind of fault: how it is played, how often it is drawn, and how long it lasts in seconds."""

    name: str
    play: Play
    weight: float
    lasts: tuple[float, float]


KINDS: dict[str, Kind] = {}


def kind(name: str, *, weight: float = 1.0, lasts: tuple[float, float] = (0.0, 0.0)) -> Callable[[Play], Play]:
    """Register a function as a kind of fault."""

    def register(play: Play) -> Play:
        KINDS[name] = Kind(name, play, weight, lasts)
        return play

    return register
