"""Runs that are made for what no seed has met: the run of a seed that met it elsewhere, with faults added just before that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import msgspec

from tools.simulate import coverage
from tools.simulate.coverage import Cell
from tools.simulate.faults import KINDS
from tools.simulate.scenario import SETTLING, Ranges, Variation
from tools.simulate.world import RunResult

WITNESSES: Final = 4
"""So many runs are kept that met something in a mode."""
TRIES: Final = 6
"""So often is a cell tried. What no run meets then is either rarer than this, or cannot be."""
JUST_BEFORE: Final = (0.1, 2.0, 0.5, 8.0, 20.0, 40.0)
"""Seconds between a fault that is added and what is to be met, try by try: less of them change less of what comes."""


class Witness(msgspec.Struct, frozen=True):
    """Hold a run that met something, and after how many virtual seconds first."""

    run: Variation
    at: float


class Filling:
    """Keep what was met, and say what to play next for what was not."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._left = {str(cell): cell for cell in coverage.wanted_cells() if cell.mode in ranges.modes}
        self._witnesses: dict[tuple[str, str], list[Witness]] = {}
        self._tried: dict[str, int] = {}

    @property
    def left(self) -> list[Cell]:
        """Return the cells that no run has met yet."""
        return list(self._left.values())

    def take(self, run: Variation, result: RunResult) -> None:
        """Take how a run ended."""
        scenario = run.scenario(self._ranges)
        for name in result.met:
            self._left.pop(name, None)
        for name, at in result.first.items():
            kept = self._witnesses.setdefault((scenario.mode, name), [])
            if len(kept) < WITNESSES and SETTLING < at < scenario.seconds:
                kept.append(Witness(run, at))

    def next_runs(self) -> Iterator[Variation]:
        """Yield a run for all that was not met in a mode after some group of faults, until it was tried often enough."""
        open_now: dict[tuple[str, str], list[Cell]] = {}
        for key, cell in self._left.items():
            if self._tried.get(key, 0) < TRIES:
                open_now.setdefault((cell.mode, cell.name), []).append(cell)
        for (mode, name), cells in open_now.items():
            tried = min(self._tried.get(str(cell), 0) for cell in cells)
            if (run := self._run_for(mode, name, [cell.group for cell in cells], tried)) is not None:
                self._tried |= {str(cell): tried + 1 for cell in cells}
                yield run

    def _run_for(self, mode: str, name: str, groups: Sequence[str], tried: int) -> Variation | None:
        here = self._witnesses.get((mode, name), [])
        elsewhere = [each for (_, met), found in self._witnesses.items() if met == name for each in found if not each.run.added]
        if not here and not elsewhere:
            return None
        if not here:
            return Variation(elsewhere[tried % len(elsewhere)].run.seed, mode)
        found = here[tried % len(here)]
        random = Random(f"{mode}/{name}/{tried}")
        # Together at first; one after the other where that changes too much.
        some = groups if tried % 2 == 0 else [random.choice(groups)]
        moments = [found.at - JUST_BEFORE[tried % len(JUST_BEFORE)] - 0.01 * number for number in range(len(some))]
        kinds = [random.choice(_kinds(mode, group)) for group in some]
        added = (f"{kind}@{at:.2f}" for kind, at in zip(kinds, moments, strict=True) if at > 0)
        return Variation(found.run.seed, mode if found.run.mode else "", (*found.run.added, *added))


def _kinds(mode: str, group: str) -> list[str]:
    return sorted(kind.name for kind in KINDS.values() if kind.group == group and kind.happens_in(mode))
