"""Labels that are edited, and switches that are taken back within a second, under running GPU pods: no driver goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.kube.resources import GVR
from tests.journeys.stage import OLD, POLICY, Stage, on_stage
from tests.journeys.test_moves import be_precompiled, uids, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver, with_pools

LAGS = (0.01, 0.2, 1.0)
GAPS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 1.0, 2.0)


@pytest.mark.parametrize("value", [None, "false", "yes"])
def test_a_pool_whose_nodes_lose_the_label_of_their_gpus_keeps_its_drivers(value: str | None) -> None:
    @on_stage(gpu_nodes=6)
    async def story(stage: Stage) -> None:
        await with_pools(stage, nvidia_driver("a"), nvidia_driver("b"))
        watcher, before = await with_workloads(stage), uids(stage)
        for node in ("gpu-1", "gpu-2", "gpu-3"):
            await stage.label(node, names.GPU_PRESENT, value)
        await stage.rest(120)
        assert (watcher.torn, uids(stage)) == ([], before)
        assert stage.labels("gpu-1")[names.GPU_PRESENT] == "true"

    story()


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("lag", LAGS)
def test_a_switch_to_nvidiadrivers_and_back_within_moments_costs_no_driver(lag: float, gap: float) -> None:
    """The ClusterPolicy's DaemonSet may be adopting the pods that run on when it is to go again."""
    @on_stage(gpu_nodes=2, watch_delay=_late(lag))
    async def story(stage: Stage) -> None:
        await stage.installed()
        watcher = await with_workloads(stage)
        await make(stage, nvidia_driver("default", {"autoUpgrade": False}, default=True))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.until(lambda: stage.sandbox.store.find("daemonsets.apps", names.DEFAULT_NAMESPACE, names.DRIVER_APP) is None)
        await stage.rest(10)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.rest(gap)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(60)
        assert watcher.torn == []

    story()


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("lag", LAGS)
def test_precompiled_drivers_that_are_wanted_for_moments_cost_no_driver(lag: float, gap: float) -> None:
    """Pods whose DaemonSet goes belong to another one the moment that they are set free."""
    @on_stage(gpu_nodes=2, watch_delay=_late(lag))
    async def story(stage: Stage) -> None:
        await stage.installed()
        await be_precompiled(stage)
        watcher, before = await with_workloads(stage), uids(stage)
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.rest(5)
        for precompiled, rest in ((False, 20.0), (True, gap), (False, gap)):
            driver = {"usePrecompiled": precompiled, "version": "580" if precompiled else OLD}
            await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": driver}})
            await stage.rest(rest)
        await stage.rest(60)
        assert (watcher.torn, uids(stage)) == ([], before)

    story()


@pytest.mark.parametrize("edited", [
    {names.DEPLOY_OPERANDS: "false"},
    {"pool": "b", names.DEPLOY_OPERANDS: "false"},
    {names.WORKLOAD_CONFIG: "vm-vgpu", names.DEPLOY_OPERANDS: "false"},
])
def test_what_a_late_watch_shows_of_a_node_s_labels_is_not_followed_once_it_is_taken_back(edited: dict[str, str]) -> None:
    @on_stage(gpu_nodes=6)
    async def story(stage: Stage) -> None:
        await with_pools(stage, nvidia_driver("a"), nvidia_driver("b"))
        watcher, before = await with_workloads(stage), uids(stage)
        stage.sandbox.api.watch_delay = lambda resource: 60.0 if resource == "nodes" else 0.01
        was = {key: stage.labels("gpu-1").get(key) for key in edited}
        for labels in (edited, was):
            for key, value in labels.items():
                await stage.label("gpu-1", key, value)
            await stage.rest(10)
        await stage.rest(120)
        assert (watcher.torn, uids(stage)) == ([], before)

    story()


@on_stage(gpu_nodes=2)
async def test_a_driver_pod_that_waits_for_a_node_is_not_left_behind(stage: Stage) -> None:
    """Placed later it would be a second driver on its node."""
    await stage.installed()
    await make(stage, nvidia_driver("default", {"autoUpgrade": False}, default=True))
    pod = stage.driver_pod("gpu-1")
    left = {**pod, "metadata": {key: pod["metadata"][key] for key in ("namespace", "labels")} | {"name": "left"},
            "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}, "status": {}}
    left["spec"]["nodeSelector"] = {"nobody": "here"}
    stage.sandbox.apply(left)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(60)
    assert "left" not in {each["metadata"]["name"] for each in driver_pods(stage)}


def _late(lag: float) -> Callable[[GVR], float]:
    return lambda resource: lag if str(resource) in ("pods", "daemonsets.apps") else 0.01
