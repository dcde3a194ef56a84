"""Settings that are written right after a driver, as by `kubectl apply -f` of a folder, count for all nodes that get it."""

from __future__ import annotations

from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_nvidiadriver import set_driver
from tests.journeys.test_removed import DEFAULT, MODES, NVIDIADRIVER, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import ALL_AT_ONCE, CANARY, on_new
from tests.journeys.test_windows import ask


@MODES
def test_waves_that_are_written_two_seconds_after_the_driver_let_the_canary_alone_start(mode: str) -> None:
    @on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=4)
        if mode == NVIDIADRIVER:
            await set_driver(stage, DEFAULT, {"upgradePolicy": ALL_AT_ONCE})
        (old,) = stage.drivers()
        await ask(stage, mode)
        await stage.rest(2)
        await apply(stage, waves=[{**CANARY, "soak": "30m"}])
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
        assert on_new(stage, old) == ["gpu-1"]
        assert stage.states()["gpu-3"] == "upgrade-required"

    scenario()
