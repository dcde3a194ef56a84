"""Runs that are made for what no run has met: one that met it, with faults added just before that; or one that leads there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from random import Random
from typing import Final

import msgspec

from tools.simulate import coverage
from tools.simulate.coverage import Cell
from tools.simulate.faults import KINDS
from tools.simulate.leads import runs_for
from tools.simulate.modes import MODES
from tools.simulate.scenario import SETTLING, Ranges, Variation, added_fault
from tools.simulate.world import AFTER, RunResult

WITNESSES: Final = 6
"""So many runs are kept that met something in a mode, those with the fewest faults before the others."""
TRIES: Final = 20
"""So often is a cell tried. What no run meets then is either rarer than this, or cannot be."""
TOGETHER: Final = 2
"""So many times with faults of all groups that are missing, then with some of them."""
LEADS: Final = 16
"""So many runs at most are to lead to something that no run in a mode has met."""
SPAN: Final = AFTER - 10.0
"""Seconds for which what comes after a fault that is added counts as coming after it, with some to spare."""
JUST_BEFORE: Final = 0.1
"""Seconds between a fault that is added and what is to be met: the less of them, the less changes of what comes."""
JUST_AFTER: Final = 0.5
"""Seconds after something was met first, while it may be met still, at which a fault comes that takes long to undo."""
MOMENTS: Final = 400
MANY: Final = 12
"""So many kinds of faults that have not been in a mode are played in one run."""

GENTLE: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("watch-broken", "watch-gone", "watches-out-of-order", "api-conflict"),
    "fuzz": ("wild-policy-annotation", "wild-label", "wild-annotation"),
    "humans": ("garbage-clocks", "resume", "safe-load", "delete-workload-pod"),
    "machines": ("image-pull", "node-added", "discovery-outage", "validator-never-ready"),
    "objects": ("edit-object", "delete-object"),
    "operators": ("handover", "two-operators", "clock-jump", "operator-restart"),
    "policies": ("second-policy", "garbage-kept-policy", "change-labels", "remove-rollout-policy"),
    "switches": ("change-pool", "add-nvidiadriver", "delete-nvidiadriver", "edit-selector", "switch-compilation"),
    "verbs": ("garbage-word", "command-retry", "command-promote", "command-approve"),
    "waiting": ("disk-pressure", "check-unknown"),
    "workloads": ("scale", "budget-removed", "pod-with-claim"),
}
"""Kinds of each group that change little of what comes."""


class Played(msgspec.Struct, frozen=True):
    """Hold a run, and when it met each thing first while faults were played."""

    run: Variation
    first: Mapping[str, float]


class Filling:
    """Keep what was met, and say what to play next for what was not."""

    def __init__(self, ranges: Ranges, cells: Iterable[Cell] | None = None) -> None:
        self._ranges = ranges
        wanted = coverage.wanted_cells() if cells is None else cells
        self._left = {str(cell): cell for cell in wanted if cell.mode in ranges.modes}
        self._kinds = {mode: {kind.name for kind in KINDS.values() if kind.happens_in(mode)} for mode in ranges.modes}
        """The kinds of faults that were not played yet in each mode."""
        self._played: dict[str, list[Played]] = {mode: [] for mode in MODES}
        self._witnesses: Counter[tuple[str, str]] = Counter()
        self._tried: Counter[str] = Counter()
        self._uses: Counter[tuple[Variation, str]] = Counter()
        """How often a run was played with more faults before it meets a name."""
        self._leads: dict[tuple[str, str], Iterator[Variation]] = {}
        self._made: set[Variation] = set()

    @property
    def left(self) -> list[Cell]:
        """Return the cells that no run has met yet."""
        return list(self._left.values())

    def take(self, run: Variation, result: RunResult) -> None:
        """Take how a run ended."""
        scenario = run.scenario(self._ranges)
        for name in result.met:
            self._left.pop(name, None)
        self._kinds.get(scenario.mode, set()).difference_update(
            kind for kind in KINDS if result.met.get(f"{scenario.mode} | fault {kind}"))
        first = {name: at for name, at in result.first.items() if SETTLING < at < scenario.seconds}
        new = [name for name in first if self._witnesses[scenario.mode, name] < WITNESSES]
        if new:
            self._witnesses.update((scenario.mode, name) for name in first)
            self._played[scenario.mode].append(Played(run, first))

    def next_runs(self) -> Iterator[Variation]:
        """Yield runs for all that was not met, until it was tried often enough; they are played before more is asked for."""
        for mode in self._ranges.modes:
            some = False
            for run in self._fresh(chain(self._met_here(mode), self._not_met_here(mode))):
                some = True
                yield run
            if not some:
                yield from self._fresh(self._of_kinds(mode))

    def _fresh(self, runs: Iterator[Variation]) -> Iterator[Variation]:
        """Leave out what was played."""
        for run in runs:
            if run not in self._made:
                self._made.add(run)
                yield run

    def _open(self, mode: str) -> dict[str, list[str]]:
        """Return what is to be tried in a mode, with the groups of faults after which it was not met."""
        found: dict[str, list[str]] = {}
        for key, cell in self._left.items():
            if cell.mode == mode and self._tried[key] < TRIES:
                found.setdefault(cell.name, []).append(cell.group)
        return found

    # What was met in the mode, and not after every group of faults.

    def _met_here(self, mode: str) -> Iterator[Variation]:
        """Yield runs in which much was met within a short time, with faults of the groups that it was not met after."""
        todo = self._open(mode)
        while (best := self._best(mode, todo)) is not None:
            played, since = best
            met = [name for name in todo if since <= played.first.get(name, 0.0) < since + SPAN]
            tried = min(self._tried[str(Cell(mode, group, name))] for name in met for group in todo[name])
            self._tried.update(str(Cell(mode, group, name)) for name in met for group in todo[name])
            groups = sorted({group for name in met for group in todo.pop(name)})
            yield self._with(mode, played.run, since, groups, tried)

    def _best(self, mode: str, todo: Mapping[str, Sequence[str]]) -> tuple[Played, float] | None:
        """Return the run, and the time in it, at which the most begins that is to be met."""
        best: tuple[Played, float, str] | None = None
        most = 0.0
        for played in self._played[mode]:
            times = sorted((at, len(todo[name]), name) for name, at in played.first.items() if name in todo)
            gain, end = 0, 0
            for since, count, name in times:
                while end < len(times) and times[end][0] < since + SPAN:
                    gain, end = gain + times[end][1], end + 1
                # The tries of a cell go round the runs that met it, and quiet ones are better.
                worth = gain * (1.5 if played.run.bare else 1.0) / (1 + self._uses[played.run, name])
                if worth > most:
                    best, most = (played, since, name), worth
                gain -= count
        if best is None:
            return None
        self._uses[best[0].run, best[2]] += 1
        return best[0], best[1]

    def _with(self, mode: str, run: Variation, at: float, groups: Sequence[str], tried: int) -> Variation:
        """Return a run with a fault of each group before something is met: gentle ones, and then whatever else there is."""
        random = Random(f"{mode}/{run}/{at}/{tried}")
        if tried >= TOGETHER:  # together they may undo each other, as an operator that starts anew forgets refusals
            groups = random.sample(groups, (len(groups) + 1) // 2)
        began = min((added_fault(run.seed, text).at for text in run.added), default=at) if run.bare else at
        before = max(began, at - SPAN) if tried % 4 >= 2 else at
        before = at + JUST_AFTER if tried % 8 == 7 else before
        added = []
        for number, group in enumerate(groups):
            kinds = self._kinds_of(mode, group, gentle=tried in (0, 2, 5, 6))
            kind, moment = random.choice(kinds), before - JUST_BEFORE - 0.01 * number
            added.append(_ended_by(run.seed, kind, moment) if tried % 2 else f"{kind}@{moment:.2f}")
        return Variation(run.seed, run.mode, (*run.added, *added), run.bare)

    def _kinds_of(self, mode: str, group: str, *, gentle: bool) -> list[str]:
        kinds = sorted(kind.name for kind in KINDS.values() if kind.group == group and kind.happens_in(mode))
        if gentle:
            return [kind for kind in kinds if kind in GENTLE.get(group, ())] or kinds
        return sorted(self._kinds[mode].intersection(kinds)) or kinds

    # What was not met in the mode.

    def _not_met_here(self, mode: str) -> Iterator[Variation]:
        """Yield a run for each name that leads to it, or that met it in another mode."""
        for name in self._open(mode):
            key = mode, name
            if self._witnesses[key]:
                continue
            found = self._leads.setdefault(key, self._runs_to(name, mode))
            if (run := next((each for each in found if each not in self._made), None)) is not None:
                yield run

    def _runs_to(self, name: str, mode: str) -> Iterator[Variation]:
        """Yield what may lead to a name: leads that are known, and runs of other modes, in turn."""
        known, elsewhere = runs_for(name, mode, self._ranges), self._elsewhere(name, mode)
        for _ in range(LEADS // 2):
            for runs in (known, elsewhere):
                if (run := next(runs, None)) is not None:
                    yield run

    def _elsewhere(self, name: str, mode: str) -> Iterator[Variation]:
        for played in [each for found in self._played.values() for each in found if name in each.first]:
            run = played.run
            yield Variation(run.seed, mode, run.added, run.bare)

    # Kinds of faults.

    def _of_kinds(self, mode: str) -> Iterator[Variation]:
        """Yield runs of kinds of faults that no run in a mode has had."""
        left = sorted(self._kinds[mode])
        if left and self._played[mode]:
            seed = self._played[mode][0].run
            step = (60.0 * self._ranges.minutes[0] - SETTLING - 10.0) / MANY
            added = (f"{kind}@{SETTLING + 5 + step * number:.2f}" for number, kind in enumerate(left[:MANY]))
            yield Variation(seed.seed, mode, ("change-driver@91.00", *added), bare=True)


def _ended_by(seed: int, kind: str, moment: float) -> str:
    """Return a fault that is over by a moment, or that is as short as it can be."""
    lasts = KINDS[kind].lasts[1]
    texts = [f"{kind}@{moment - 0.05 * number:.2f}" for number in range(MOMENTS if lasts else 1)]
    faults = ((added_fault(seed, text), text) for text in texts)
    found = [(fault.seconds, text) for fault, text in faults if fault.at > 0]
    shortest, _ = min(found, default=(0.0, ""))
    wanted = max(moment - shortest, 1.0)
    later = [f"{kind}@{wanted - 0.01 * number:.2f}" for number in range(MOMENTS if lasts else 1)]
    ending = [text for text in later if added_fault(seed, text).at + added_fault(seed, text).seconds <= moment]
    return ending[0] if ending else later[0]
