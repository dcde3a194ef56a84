"""Branch a run: at a moment of it the process forks, and the child lives on in a world of its own.

What was before the moment is played once for all branches, so a case costs only what comes after its disturbance.
The program must have one thread only, and no I/O that a child would share.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import msgspec

CASE_SECONDS = 300
"""Real seconds after which a case is given up: it is stuck outside of virtual time."""


class Result(msgspec.Struct, frozen=True):
    """Hold how a case ended: with nothing wrong, it is as the oracle says."""

    case: str
    wrong: tuple[str, ...] = ()
    notes: dict[str, int] = {}
    """What was counted on the way."""


class Branches:
    """Fork at most `jobs` children at once, and gather their results in a folder."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.jobs = jobs
        self.case = ""
        """The case that this process plays; empty in the process that all others come from."""
        self._number = 0
        self._children: dict[int, tuple[int, str]] = {}

    def begin(self, case: str) -> bool:
        """Fork for a case; return True in the child. A child has no children."""
        if self.case:
            return False
        while len(self._children) >= self.jobs:
            self._reap()
        loop = asyncio.get_running_loop()
        gc.freeze()
        self._number += 1
        child = os.fork()
        if child:
            self._children[child] = (self._number, case)
            return False
        self.case = case
        signal.alarm(CASE_SECONDS)
        asyncio._set_running_loop(loop)
        return True

    def end(self, wrong: Iterable[str], notes: dict[str, int]) -> NoReturn:
        """Write down how the case of this child ended, and end."""
        self._write(self._number, Result(self.case, tuple(wrong), notes))
        os._exit(0)

    def results(self) -> list[Result]:
        """Wait for all children and return their results, in order of their cases' begin."""
        while self._children:
            self._reap()
        return [msgspec.json.decode(path.read_bytes(), type=Result) for path in sorted(self.folder.glob("*.json"))]

    def _reap(self) -> None:
        child, status = os.wait()
        number, case = self._children.pop(child)
        if status:
            self._write(number, Result(case, (f"the process ended with {status}",)))

    def _write(self, number: int, result: Result) -> None:
        (self.folder / f"{number:06d}.json").write_bytes(msgspec.json.encode(result))


def last_words() -> str:
    """Return what ended a case that did not come to its end: the last lines of the traceback."""
    return "".join(traceback.format_exception(*sys.exc_info()))[-1500:]
