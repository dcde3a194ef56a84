"""A pause while drivers are withheld, as after drivers were switched off and on again: it evicts nobody, and loses no driver."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpuward import names
from gpuward.kube import resources
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import at_rest, set_driver, torn, with_notebooks

MODES = ["plain", "precompiled", "nvidiadriver"]
ONE_LIMIT = {"maxUnavailable": 1}
OFF = {"upgradePolicy": {"autoUpgrade": False}}


def workloads(stage: Stage, nodes: set[str] | None = None) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.workload_pods() if nodes is None or pod["spec"].get("nodeName") in nodes}


async def change(stage: Stage, mode: str, fields: Mapping[str, object]) -> None:
    """Edit the driver where this mode has it."""
    if mode == "nvidiadriver":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "z", {"spec": fields})
    else:
        await set_driver(stage, fields)


async def without_driver_pods(stage: Stage, mode: str) -> set[str]:
    """Install drivers, run notebooks, and take the driver pods away; return which workloads run on the modules that stay."""
    if mode == "nvidiadriver":
        await label_pools(stage, a=" ".join(node["metadata"]["name"] for node in stage.gpu_node_objects()))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "595"})
    await stage.installed()
    await with_notebooks(stage)
    if mode == "nvidiadriver":
        await stage.remove_at_once()
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
    else:
        await stage.switch_off_at_once()
    await stage.until(lambda: not driver_pods(stage))
    await stage.rest(30)
    return workloads(stage)


async def with_new_drivers(stage: Stage, mode: str, limits: Mapping[str, object]) -> None:
    """Ask for other drivers, which are withheld from nodes until their turn comes."""
    if mode == "nvidiadriver":
        await make(stage, nvidia_driver("z", limits, default=True, version=NEW))
    else:
        version = "580" if mode == "precompiled" else NEW
        await set_driver(stage, {"enabled": True, "version": version, "upgradePolicy": limits})


@pytest.mark.parametrize("mode", MODES)
def test_a_pause_leaves_nodes_alone_that_wait_for_their_driver(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        before = await without_driver_pods(stage, mode)
        loaded = stage.drivers()
        await with_new_drivers(stage, mode, {"maxUnavailable": 0})
        await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
        assert workloads(stage) == before
        await change(stage, mode, OFF)
        await stage.rest(300)
        assert (workloads(stage), stage.drivers(), stage.cordons()) == (before, loaded, [])
        assert {stage.hold(node) for node in stage.states()} == {"Paused"}
        assert "autoUpgrade" in reason_of(await explanation_of(stage, "gpu-1"))
        stage.watch_limits()
        await change(stage, mode, {"upgradePolicy": {"autoUpgrade": True, "maxUnavailable": 1}})
        await at_rest(stage, "580" if mode == "precompiled" else NEW)
        assert stage.most_unavailable == 1

    story()


@pytest.mark.parametrize("mode", MODES)
def test_a_pause_in_mid_rollout_gives_no_further_node_its_driver(mode: str) -> None:
    @on_stage(gpu_nodes=4)
    async def story(stage: Stage) -> None:
        await without_driver_pods(stage, mode)
        await with_new_drivers(stage, mode, ONE_LIMIT)
        await stage.until(stage.cordons)
        waiting = {node for node in stage.states() if not stage.cordoned(node)}
        before = workloads(stage, waiting)
        stage.watch_limits()
        await change(stage, mode, OFF)
        await stage.rest(120)
        assert len(waiting) == 3
        assert before <= workloads(stage)
        assert (stage.most_unavailable, torn(stage)) == (1, [])

    story()


@on_stage(gpu_nodes=2)
async def test_in_a_pause_the_driver_that_is_loaded_comes_back(stage: Stage) -> None:
    before = await without_driver_pods(stage, "plain")
    await with_new_drivers(stage, "plain", {"maxUnavailable": 0})
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await set_driver(stage, OFF)
    await stage.until(lambda: stage.hold("gpu-1") == "Paused")
    await set_driver(stage, {"version": OLD})
    await stage.until(lambda: len(driver_pods(stage)) == 2)
    await stage.rest(120)
    assert (workloads(stage), stage.drivers(), torn(stage)) == (before, [OLD], [])


@on_stage(gpu_nodes=2)
async def test_in_a_pause_a_label_set_by_hand_brings_the_driver(stage: Stage) -> None:
    await without_driver_pods(stage, "plain")
    await with_new_drivers(stage, "plain", {"maxUnavailable": 0})
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await set_driver(stage, OFF)
    await stage.until(lambda: stage.hold("gpu-1") == "Paused")
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "true")
    await stage.until(lambda: stage.driver("gpu-1") == NEW)
    await stage.rest(120)
    assert (stage.driver("gpu-2"), driver_pods(stage, "gpu-2")) == (OLD, [])
