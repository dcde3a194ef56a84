"""The CRD of NVIDIADrivers is deleted in mid-upgrade, and its objects a moment before it."""

from __future__ import annotations

from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_leaving_in_mid_upgrade import by_nvidia_driver

DRIVERS = "nvidiadrivers.nvidia.com"


@on_stage(gpu_nodes=2)
async def test_a_node_whose_driver_is_untouched_goes_back_into_service_and_is_told_why(stage: Stage) -> None:
    await by_nvidia_driver(stage)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
    node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
    stage.sandbox.store.delete(DRIVERS, None, "default")
    await stage.rest(0.1)
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, DRIVERS)
    await stage.rest(600)
    assert (stage.driver(node), stage.cordons()) == (OLD, [])
    assert sentence(stage.operator.plan.holds[node]).startswith("no NVIDIADriver selects this node")
