"""A rollout that stops at its first node for another operand than the driver: nobody is sent to take the driver back at first."""

from __future__ import annotations

from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of
from tests.journeys.stage import NEW, Stage, on_stage


@on_stage(gpu_nodes=2)
async def test_others_are_sent_to_the_node_whose_toolkit_crashes_before_the_driver_is_taken_back(stage: Stage) -> None:
    await stage.installed()
    fault = Fault(FaultKind.TOOLKIT_CRASH, node="gpu-1")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "NewDriverFails", within=1200)
    assert stage.driver("gpu-1") == NEW, "the driver is not to blame"
    first, second, *_ = (await explanation_of(stage, "gpu-2")).remedies
    assert first.do == "look at node gpu-1, whose driver is loaded, and not validated"
    assert first.commands == ("gpuward explain gpu-1",)
    assert second.do.startswith("take the new driver back")
    stage.sandbox.faults.clear(fault)
    await stage.upgraded()
