"""What `gpuward history` prints: on a terminal of 80 columns too, and for programs."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gpuward.cli.history import gpu_time, node_table, rollout_table, summary
from gpuward.model.history import Ending
from gpuward.report.rollouts import PastRollout, past_rollouts
from tests.report.test_rollouts import DAY, START, past, remembering


def rollouts() -> list[PastRollout]:
    asked: dict[str, Any] = {"asked": "kubectl-client-side-apply", "evicted": 12, "lost": 720_000.0}
    return past_rollouts([
        *(remembering(f"gpu-worker-{number:03}.example.org", past(START + DAY + number, **asked),
                      past(START, "580.95.04", before="570.1")) for number in range(9)),
        remembering("gpu-9", past(START + DAY, failures=2, failed_in="pod-restart-required", ending=Ending.FAILED)),
    ], START + 2 * DAY)


def printed(what: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_each_rollout_has_a_line_the_newest_first() -> None:
    titles, newest, oldest = printed(rollout_table(rollouts()), 250)
    assert " ".join(titles.split()) == "ROLLOUT POLICY FROM TO ASKED BY NODES FAILED TOOK EVICTED GPU TIME OUT WORK LOST"
    assert " ".join(newest.split()) == (
        "20260103-030405 ClusterPolicy 580.95.04 580.95.05 kubectl-client-side-apply 10 1 (2x) 5m8s 108 6.7 h 1800 h")
    assert oldest.split()[:4] == ["20260102-030405", "ClusterPolicy", "570.1", "580.95.04"]


def test_it_fits_a_terminal_of_80_columns() -> None:
    found = rollouts()
    lines = [*printed(rollout_table(found, 80), 80), *printed(node_table(found[0].upgrades, 80), 80)]
    assert max(map(len, lines)) <= 80
    assert all(line.index("…") < 35 for line in lines if "…" in line), "only the name of a node is cut"
    assert len(lines) == 3 + 11


def test_one_rollout_is_shown_with_its_nodes_and_steps() -> None:
    newest = rollouts()[0]
    assert summary(newest) == [
        "ROLLOUT   20260103-030405 of ClusterPolicy",
        "TIME      2026-01-03T03:04:05.000Z to 2026-01-03T03:09:13.000Z, 5m8s",
        "FROM      580.95.04 (10)",
        "TO        580.95.05",
        "ASKED BY  kubectl-client-side-apply",
        "NODES     10: 9 done, 1 failed; 2 failures",
        "PODS      108 evicted",
        "GPU TIME  6.7 h out of service, 1800 h of work lost at most",
    ]
    titles, *lines = printed(node_table(newest.upgrades), 250)
    assert " ".join(titles.split()) == "NODE OUTCOME FAILURES BEGAN OUT JOBS EVICTION DRIVER VALIDATION EVICTED LOST"
    (failed,) = [line for line in lines if line.startswith("gpu-9 ")]
    assert " ".join(failed.split()) == (
        "gpu-9 failed 2, last in pod-restart-required 2026-01-03T03:04:05Z 5m0s 0s 10s 4m10s 40s 0 0.0 h")


def test_programs_get_everything() -> None:
    told = rollouts()[0].as_json(nodes=True)
    assert (told["name"], told["to"], told["askedBy"], told["podsEvicted"]) == (
        "20260103-030405", "580.95.05", ["kubectl-client-side-apply"], 108)
    assert told["upgrades"][0]["seconds"] == {"waitingForJobs": 0.0, "eviction": 10.0, "driver": 250.0, "validation": 40.0}
    assert "upgrades" not in rollouts()[0].as_json(nodes=False)


@pytest.mark.parametrize(("seconds", "told"), [(0, "0.0 h"), (5400, "1.5 h"), (3_600_000, "1000 h")])
def test_gpu_time_is_in_hours(seconds: float, told: str) -> None:
    assert gpu_time(seconds) == told
