"""One rollout, disturbed at every moment there is: a sample here, all cases with `./dev test --whole`.

Each enumeration runs in a process of its own, since it forks for every case: see `python -m tests.reliability --help`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.reliability.cases import KINDS, Report
from tests.reliability.setups import SETUPS
from tests.sampling import WHOLE

LAGS = ("--lags", "1-32")
SAMPLES = {"cut": 37, "stale": 293, "unseen": 53}
"""Which of the cases are played: each so-manieth."""
RARER = 3
"""By how much fewer are played where drivers do not come from the ClusterPolicy and are not compiled on the nodes."""
LEAST = 5
ENOUGH = ("--pictures", "1")
"""With all cases, each ends at the first rest after its disturbance if all is well there. Those of a sample go on to the end."""


@pytest.mark.parametrize("mode", SETUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_rollout_ends_as_if_undisturbed(kind: str, mode: str) -> None:
    every = SAMPLES[kind] * (1 if mode == "clusterpolicy" else RARER)
    chosen = ENOUGH if WHOLE else ("--every", str(every))
    report = play(kind, "--mode", mode, *(LAGS if kind == "stale" else ()), *chosen)
    assert {result.case: result.wrong for result in report.results if result.wrong} == {}
    assert len(report.results) >= (report.cases if WHOLE else LEAST)


def play(kind: str, *options: str) -> Report:
    """Play an enumeration; sets have the same order each time, so that a case is found again by its name."""
    command = [sys.executable, "-m", "tests.reliability", kind, *options]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONHASHSEED": "0"}, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(ended.stdout, type=Report)
