"""Play many seeds, in several processes."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

import msgspec

from tools.simulate.scenario import Ranges, Variation
from tools.simulate.watch import Violation
from tools.simulate.world import RunResult, play

ITSELF: Final = "the simulation itself runs"
"""The rule that is broken where not the operator failed, but what plays it."""


def results(runs: Iterable[Variation], ranges: Ranges, jobs: int) -> Iterator[tuple[Variation, RunResult]]:
    """Yield how each run ended, as they end."""
    if jobs <= 1:
        yield from (_quietly(run, ranges) for run in runs)
        return
    # Frozen, what was imported is not looked at by every collection of a process that lives for thousands of runs.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=gc.freeze) as pool:
        for future in as_completed([pool.submit(_quietly, run, ranges) for run in runs]):
            yield future.result()


def _quietly(run: Variation, ranges: Ranges) -> tuple[Variation, RunResult]:
    """Play a run; the story stays here, and a crash of the simulation itself counts as a failure."""
    try:
        return run, msgspec.structs.replace(play(run.scenario(ranges)), story=())
    except Exception:  # one run's crash must not hide what the others find
        violation = Violation(ITSELF, 0.0, "", traceback.format_exc(limit=-4))
        return run, RunResult(run.seed, "", 0.0, 0, violation, {})
