"""The line about waves says what became of every node, and is broken between waves where it is too long."""

from __future__ import annotations

from gpuward.model.waves import REST, WavePhase, WaveStatus
from tests.journeys.looking import screen_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import ALL_AT_ONCE, promote, waves_line
from tests.report.test_no_rest import shown

WAVES = [{"name": name, "nodes": 1, "soak": "10m", "approval": "Required"} for name in ("canary", "second", "third")]


def test_nodes_of_a_wave_that_are_waited_for_no_longer_are_told() -> None:
    line = shown(WaveStatus("second", WavePhase.DONE, total=0, done=0, left=("a", "b")),
                 WaveStatus("third", WavePhase.GOES, total=3, done=1, left=("c",)),
                 WaveStatus(REST, WavePhase.WAITS, total=0, done=0, left=("d",)))
    assert "second: 2 left out; third: 1 of 3 done, 1 left out, goes now; all other nodes: 1 left out, waits" in line


@on_stage(gpu_nodes=5, upgrade=ALL_AT_ONCE)
async def test_no_node_vanishes_from_the_line_as_a_wave_is_promoted(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{"name": "second", "nodes": 2}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.rest(2)
    await promote(stage)
    await stage.rest(2)
    assert "second: 2 left out; all other nodes: 0 of 3 done" in await waves_line(stage)


@on_stage(gpu_nodes=5, upgrade=ALL_AT_ONCE)
async def test_the_line_is_broken_between_waves_on_a_narrow_terminal(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=WAVES)
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-5") == "WaveSoaking")
    for width in (60, 100):
        lines = await screen_of(stage, width)
        first = next(place for place, line in enumerate(lines) if line.startswith("waves "))
        told = [line.strip() for line in lines[first:first + 6]]
        assert max(map(len, lines)) <= width
        assert " ".join(told).count("all other nodes: 0 of 2 done, waits") == 1
        assert all(any(line.startswith((f"waves     {name}: ", f"{name}: ")) or f"; {name}: " in line for line in told)
                   for name in ("canary", "second", "third"))
