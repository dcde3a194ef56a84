"""The kubelet evicts driver pods of nodes that wait: their DaemonSet would bring the newest driver under the pods there."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import at_rest, set_driver, torn, with_notebooks

NONE_MAY_START = {"maxUnavailable": 0}


async def installed(stage: Stage, mode: str) -> None:
    if mode == "nvidiadriver":
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "595"})
    await stage.installed()


async def upgrade(stage: Stage, mode: str, limits: object) -> str:
    """Ask for another driver within limits, and return the version of it."""
    version = "580" if mode == "precompiled" else NEW
    fields = {"version": version, "upgradePolicy": limits}
    if mode == "nvidiadriver":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": fields})
    else:
        await set_driver(stage, fields)
    return version


@pytest.mark.parametrize("mode", ["plain", "precompiled", "nvidiadriver"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_no_newer_driver_comes_under_pods_after_the_kubelet_evicted_a_driver_pod(mode: str, busy: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        await with_notebooks(stage)
        if busy:
            await stage.deploy("train", node="gpu-1")
        before, loaded = {pod["metadata"]["uid"] for pod in stage.workload_pods()}, stage.driver("gpu-1")
        await upgrade(stage, mode, NONE_MAY_START)
        await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
        stage.sandbox.evict_for_shortage("gpu-operator", driver_pods(stage, "gpu-1")[0]["metadata"]["name"])
        await stage.rest(600)
        assert (torn(stage), stage.driver("gpu-1"), driver_pods(stage, "gpu-1")) == ([], loaded, [])
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == before
        stage.watch_limits()
        wanted = await upgrade(stage, mode, {"maxUnavailable": 1})
        await at_rest(stage, wanted)
        assert stage.most_unavailable == 1

    story()


@on_stage(gpu_nodes=2)
async def test_a_driver_pod_of_the_newest_template_that_the_kubelet_evicts_comes_back_at_once(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    before = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
    evicted = stage.driver_pod("gpu-1")
    stage.sandbox.evict_for_shortage("gpu-operator", evicted["metadata"]["name"])
    await stage.until(lambda: evicted["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in driver_pods(stage)])
    await stage.rest(300)
    assert (stage.cordons(), torn(stage), stage.drivers()) == ([], [], [OLD])
    assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == before
    assert stage.labels("gpu-1")[names.DEPLOY_DRIVER] == "true"
