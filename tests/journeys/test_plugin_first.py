"""A pod that names its node comes as the driver goes: the device plugin has stopped before, so the kubelet refuses it."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
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


@pytest.mark.parametrize("gap", [0.1, 0.5, 1.5])
@pytest.mark.parametrize("into", [0.5, 1.0, 1.9])
def test_a_node_whose_device_plugin_is_being_replaced(into: float, gap: float) -> None:
    """It is restarted, or gets another version, while the node is emptied: it offers GPUs until it has ended."""
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        stage.run_pod("training", "gpu-1", owned=True)
        await stage.rest(60)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
        await stage.rest(into)
        for pod in stage.pods(names.DEVICE_PLUGIN_APP, "gpu-1"):
            await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)
        await driver_goes(stage)
        await stage.rest(gap)
        await comes_too_late(stage)

    scenario()
