"""NVIDIADrivers that nodes are moved to, seen from there: what their own upgrade policies say holds for nodes that come, too."""

from __future__ import annotations

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.sim.faults import Fault, FaultKind
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_moves import with_one_owner
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver


@on_stage(gpu_nodes=3)
async def test_a_driver_that_crashes_where_upgrades_are_off_is_said_to_crash(stage: Stage) -> None:
    await with_one_owner(stage)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await label_pools(stage, b="gpu-1")
    await make(stage, nvidia_driver("b", {"autoUpgrade": False}, version=NEW))
    await stage.until(lambda: stage.labels("gpu-1").get(names.DRIVER_OWNER) == "b" and driver_pods(stage, "gpu-1"))
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing")
    pod = driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
    hold = stage.operator.plan.holds["gpu-1"]
    assert hold.args["pod"] == pod
    assert "restart" in str(hold.args["trouble"])
    await stage.rest(3600)
    assert (stage.hold("gpu-1"), stage.state("gpu-1")) == ("DriverFailing", State.POD_RESTART_REQUIRED)
    assert stage.driver("gpu-1") == ""
