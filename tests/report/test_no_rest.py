"""The line about waves names no group that has no node."""

from __future__ import annotations

from gpuward.model.plan import Plan
from gpuward.model.waves import REST, RolloutWaves, WavePhase, WaveStatus
from gpuward.report.waves import wave_lines


def shown(*waves: WaveStatus) -> str:
    """Return the line about the waves of a rollout."""
    (line,) = wave_lines(Plan(waves=(RolloutWaves("", ("560",), waves),)))
    return line


def test_all_other_nodes_are_left_out_where_there_are_none() -> None:
    line = shown(WaveStatus("canary", WavePhase.GOES, total=2, done=1), WaveStatus(REST, WavePhase.WAITS, total=0, done=0))
    assert "canary: 1 of 2 done" in line
    assert REST not in line
