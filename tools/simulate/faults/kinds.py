"""The register of the kinds of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tools.simulate.scenario import Fault
    from tools.simulate.world import SimulatedWorld

VERBS = "verbs"
"""A stream of kinds that came later: what is drawn of them leaves the draws of the others as they were."""
LED = "led"
"""A stream of kinds that no seed draws: leads alone play them, for what comes too seldom by itself."""

End = Callable[[], None]
Play = Callable[["SimulatedWorld", "Fault"], End | None]


class Kind(NamedTuple):
    """Hold a kind of fault: how it is played, how often it is drawn, how long it lasts in seconds, and in which modes."""

    name: str
    play: Play
    weight: float
    lasts: tuple[float, float]
    modes: frozenset[str] | None = None
    stream: str = ""
    """From which randomness it is drawn, with the other kinds that are drawn from the same."""

    @property
    def group(self) -> str:
        """Return whose doing it is: the module of its function."""
        return self.play.__module__.rpartition(".")[2]

    def happens_in(self, mode: str) -> bool:
        """Tell whether there is anything that it could be done to in a mode."""
        return self.modes is None or mode in self.modes


KINDS: dict[str, Kind] = {}


def kind(
    name: str, *, weight: float = 1.0, lasts: tuple[float, float] = (0.0, 0.0), modes: frozenset[str] | None = None,
    stream: str = "",
) -> Callable[[Play], Play]:
    """Register a function as a kind of fault."""

    def register(play: Play) -> Play:
        KINDS[name] = Kind(name, play, weight, lasts, modes, stream)
        return play

    return register
