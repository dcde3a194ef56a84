"""Play many sequences, in several processes."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from tools.oracle.played import Verdict, play
from tools.oracle.sequence import draw


def verdicts(seeds: Iterable[int], most: int, jobs: int) -> Iterator[Verdict]:
    """Yield how each seed ended, as they end."""
    if jobs <= 1:
        yield from (played(seed, most) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=gc.freeze) as pool:
        for future in as_completed([pool.submit(played, seed, most) for seed in seeds]):
            yield future.result()


def played(seed: int, most: int) -> Verdict:
    """Play a seed; a crash of what plays it counts as a failure."""
    try:
        return play(draw(seed, most))
    except Exception:  # one seed must not hide what the others find
        return Verdict(seed, (traceback.format_exc(limit=-4),))
