"""Play many seeds, in several processes."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

import msgspec

from tools.simulate.scenario import Ranges, draw
from tools.simulate.watch import Violation
from tools.simulate.world import RunResult, play

ITSELF: Final = "the simulation itself runs"
"""The rule that is broken where not the operator failed, but what plays it."""


def results(seeds: Iterable[int], ranges: Ranges, jobs: int) -> Iterator[RunResult]:
    """Yield how each seed ended, as they end."""
    if jobs <= 1:
        yield from (_quietly(seed, ranges) for seed in seeds)
        return
    # Frozen, what was imported is not looked at by every collection of a process that lives for thousands of runs.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=gc.freeze) as pool:
        for future in as_completed([pool.submit(_quietly, seed, ranges) for seed in seeds]):
            yield future.result()


def _quietly(seed: int, ranges: Ranges) -> RunResult:
    """Play a seed; the story stays here, and a crash of the simulation itself counts as a failure."""
    try:
        return msgspec.structs.replace(play(draw(seed, ranges)), story=())
    except Exception:  # one seed's crash must not hide what the others find
        violation = Violation(ITSELF, 0.0, "", traceback.format_exc(limit=-4))
        return RunResult(seed, "", 0.0, 0, violation, {})
