"""One pass of a controller: what it saw, what it decided, and how that went. Whoever wants to know of passes is given this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from gpuward.model.actions import Action
from gpuward.model.snapshot import Snapshot


class Outcome(msgspec.Struct, frozen=True):
    """Say how one action ended. `error` is empty for a success; a dropped action followed a failed one of its lane."""

    action: Action
    error: str = ""
    dropped: bool = False
    idle: bool = False
    """Whether a look showed that nothing had to be written."""
    called_off: bool = False
    """Whether the last look before it showed that it is not wanted now, or this process does not lead any more: no failure."""
    wait: float = 0.0
    """Seconds after which it may be tried again, where the API server refused it for its own load; 0 where that is not known."""

    @property
    def written(self) -> bool:
        """Tell whether it changed something."""
        return not (self.error or self.dropped or self.idle)


class Decision(Protocol):
    """What a pass decided: what to do now, and when to look again unasked."""

    @property
    def actions(self) -> Sequence[Action]:
        """Return what to do now."""
        ...

    @property
    def wake_at(self) -> float | None:
        """Return when time alone changes the decision."""
        ...


P = TypeVar("P", covariant=True)
"""The policies in force, as a reader of snapshots gives them."""
D = TypeVar("D", bound=Decision, covariant=True)


class Pass(msgspec.Struct, Generic[P, D], frozen=True):
    """Hold one pass. A decision depends on the snapshot, the policies, the time and what earlier passes left; on nothing else."""

    snapshot: Snapshot
    policies: P
    at: float
    """The one reading of the clock that the decision was given, in Unix seconds."""
    decision: D | None = None
    """None where deciding failed."""
    outcomes: tuple[Outcome, ...] = ()
    error: str = ""
    """The type of the error that ended the decision."""
