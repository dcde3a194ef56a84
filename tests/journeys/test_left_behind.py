"""Driver pods whose DaemonSet is gone, or is another one than made them: each node ends with the driver that people ask for."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_moves import OTHER_KERNEL, at_rest, headline, images, with_workloads
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize(("edited", "spec"), [
    (names.NFD_OS_VERSION, {}),
    (names.NFD_KERNEL, {"version": "580", "usePrecompiled": True}),
])
def test_a_node_whose_nvidiadriver_is_made_again_is_upgraded_to_what_discovery_says_now(
    edited: str, spec: dict[str, Any], automatic: bool
) -> None:
    """Its driver pod is nobody's, and another NVIDIADriver of the name is for another operating system or kernel there."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", default=True, **spec))
        await stage.installed()
        watcher = await with_workloads(stage)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.rest(60)
        said = OTHER_KERNEL if edited == names.NFD_KERNEL else "24.04" if stage.labels("gpu-2")[edited] == "22.04" else "22.04"
        await stage.label("gpu-2", edited, said)
        await stage.rest(60)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation="Orphan")
        await stage.rest(60)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(60)
        await make(stage, nvidia_driver("default", {"autoUpgrade": automatic}, default=True, **spec))
        if not automatic:
            await stage.rest(300)
            assert (stage.hold("gpu-2"), watcher.torn) == ("MovePaused", [])
            await set_driver(stage, "default", {"upgradePolicy": {"autoUpgrade": True}})
        await stage.until(lambda: images(stage, "gpu-2") != [] and said in images(stage, "gpu-2")[0], within=3600)
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"), within=3600)
        await at_rest(stage, watcher)
        assert State.POD_DELETION_REQUIRED in stage.entered("gpu-2")
        assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)

    scenario()
