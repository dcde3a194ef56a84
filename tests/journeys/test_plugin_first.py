"""A pod that names its node comes as the driver is about to go: the device plugin has stopped before that, so the kubelet refuses it."""

from __future__ import annotations

import pytest

from gpuward import names
from kubesandbox.sim.objects import is_terminating
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_node_workload import torn


async def driver_goes(stage: Stage) -> None:
    await stage.until(lambda: any(map(is_terminating, stage.pods(names.DRIVER_APP, "gpu-1"))))


async def comes_too_late(stage: Stage) -> None:
    """Have a pod come that names the node: it is given no GPU, and the upgrade ends."""
    stage.run_pod("late", "gpu-1", owned=True)
    await stage.upgraded(NEW)
    assert torn(stage) == []


@pytest.mark.parametrize("gap", [0.05, 0.5, 1.5])
def test_an_idle_node(gap: float) -> None:
    """Nothing has to leave it: it is admitted, and its driver would go, in one pass."""
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.rest(60)
        await stage.upgrade_to(NEW)
        await driver_goes(stage)
        await stage.rest(gap)
        await comes_too_late(stage)

    scenario()
