"""What the operator logs of an NVIDIADriver."""

from __future__ import annotations

from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver


@on_stage(gpu_nodes=2)
async def test_a_driver_that_crashes_again_and_again_is_one_line(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "driver-crash")
    stage.sandbox.trouble("gpu-2", "driver-crash")
    await set_driver(stage, "default", {"version": "595.91.08"})
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing" or stage.hold("gpu-2") == "DriverFailing")
    before = len(stage.log)
    await stage.rest(900)
    assert [line["message"] for line in stage.log[before:] if line["msg"] == "NVIDIADriver notReady"] == []
