"""The rights that we ship do for NVIDIADrivers too: everything that the operator asks for with them is allowed."""

from __future__ import annotations

from tests.deploy.test_rights import objects, rights
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver


@on_stage(gpu_nodes=2)
async def test_what_nvidia_drivers_take_is_allowed(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.upgraded()
    await stage.restart_operator()
    await stage.rest(60)
    allowed = set(rights(objects("ClusterRole"))) | set(rights(objects("Role")))
    used = {(key.verb, key.resource) for key in stage.client.stats.requests}
    assert ("patch", "nvidiadrivers.nvidia.com/status") in used
    assert used - allowed == set()
