"""Nodes where pods run on a driver that has no driver pod: no other driver comes under these pods, however it is asked for.

The pods have GPUs and none of them open, like a notebook: nothing but gpuward keeps a driver manager from unloading their driver.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.machine import DriverChange
from gpuward.sandbox.programs import OPENS_GPUS
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready, is_terminating
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, gpu_template, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver


async def with_notebooks(stage: Stage) -> None:
    """Run a pod on each node that was given a GPU and has none open."""
    for node in stage.states():
        template = gpu_template(f"notebook-{node}")
        template["metadata"]["annotations"] = {OPENS_GPUS: "false"}
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        stage.sandbox.apply(deployment(f"notebook-{node}", WORKLOAD_NAMESPACE, 1, template))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == len(stage.states()))


def torn(stage: Stage) -> list[str]:
    """Return which drivers were unloaded under which pods."""
    return [f"{one.driver} on {one.machine} under {', '.join(one.workloads)}, by {one.pod}" for one in stage.sandbox.passages
            if one.change is DriverChange.UNLOADED and one.workloads]


def restarting(stage: Stage) -> list[str]:
    """Return the nodes whose driver pod is asked to go so that another one comes."""
    return [node for node in stage.states() if stage.state(node) == State.POD_RESTART_REQUIRED
            and all(map(is_terminating, driver_pods(stage, node)))]


async def at_rest(stage: Stage, version: str) -> None:
    """Wait until every node has a driver version, validated, and is in service, and see that none came under pods."""
    await stage.until(lambda: torn(stage) or (stage.finished(version) and not stage.cordons()), within=3600)
    assert torn(stage) == []


async def set_driver(stage: Stage, fields: Mapping[str, object]) -> None:
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": fields}})


@on_stage(gpu_nodes=2)
async def test_a_node_that_left_its_pool_is_emptied_before_another_nvidiadriver_serves_it(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"))
    await stage.installed()
    await with_notebooks(stage)
    await stage.label("gpu-1", "pool", None)
    await stage.until(lambda: stage.hold("gpu-1") == "NotSelected" and not driver_pods(stage, "gpu-1"))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 2)
    await make(stage, nvidia_driver("z", {"maxUnavailable": 0}, default=True, version=NEW))
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await stage.rest(120)
    assert (stage.driver("gpu-1"), stage.cordons()) == (OLD, [])
    assert names.DEPLOY_DRIVER not in stage.labels("gpu-1")
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "z", {"spec": {"upgradePolicy": {"maxUnavailable": 1}}})
    await stage.until(lambda: torn(stage) or stage.driver("gpu-1") == NEW)
    await stage.until(lambda: stage.all_are(State.DONE) and not stage.cordons())
    assert torn(stage) == []
    assert stage.driver("gpu-2") == OLD


@on_stage(gpu_nodes=2)
async def test_nodes_that_no_nvidiadriver_had_are_emptied_before_the_cluster_policy_serves_them(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", ALL_AT_ONCE))
    await stage.installed()
    await with_notebooks(stage)
    for node in stage.states():
        await stage.label(node, "pool", None)
    await stage.until(lambda: not driver_pods(stage))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 2)
    stage.watch_limits()
    await set_driver(stage, {"useNvidiaDriverCRD": False, "version": NEW})
    await at_rest(stage, NEW)
    assert stage.most_unavailable == 1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_drivers_that_are_switched_off_and_on_again_come_under_no_pod(version: str) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        before = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        for node in stage.states():
            await stage.deploy(f"train-{node}", node=node)  # these keep the modules loaded when the driver pods go
        await stage.switch_off_at_once()
        await stage.until(lambda: not driver_pods(stage))
        await stage.rest(30)
        assert stage.drivers() == [OLD]
        stage.watch_limits()
        await set_driver(stage, {"enabled": True, "version": version})
        await at_rest(stage, version)
        if version == OLD:
            assert before <= {pod["metadata"]["uid"] for pod in stage.workload_pods()}, "the same driver evicts nobody"
        assert stage.most_unavailable <= 1

    story()


@pytest.mark.parametrize("change", [
    {"version": NEW},
    {"usePrecompiled": True, "version": "580"},
    {"useNvidiaDriverCRD": True},
], ids=["version", "precompiled", "nvidiadrivers"])
@pytest.mark.parametrize("late", [0.0, 0.5, 2.0])
def test_another_driver_asked_for_while_a_driver_pod_is_only_restarted_waits(change: Mapping[str, object], late: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        if "useNvidiaDriverCRD" in change:
            await make(stage, nvidia_driver("default", default=True, version=NEW))
        await stage.patch_policy("driver/resources", {"limits": {"cpu": "1"}})
        await stage.until(lambda: restarting(stage))
        await stage.rest(late)
        await set_driver(stage, change)
        version = "580" if "usePrecompiled" in change else NEW
        await at_rest(stage, version)

    story()


@on_stage(gpu_nodes=2)
async def test_a_node_whose_driver_is_gone_stays_out_of_service_until_an_nvidiadriver_is_for_it(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: restarting(stage))
    [node] = restarting(stage)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(300)
    assert stage.cordons() == [node]
    assert not stage.sandbox.machine(node).workloads
    told = await explanation_of(stage, node)
    assert reason_of(told) == "no NVIDIADriver selects this node, so it gets no driver pod"
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True, version=NEW))
    await at_rest(stage, NEW)


@on_stage(gpu_nodes=2)
async def test_a_node_that_somebody_hid_from_its_driver_is_emptied_before_a_newer_one_comes(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    for node in stage.states():
        await stage.deploy(f"train-{node}", node=node)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "false")
    await stage.until(lambda: not driver_pods(stage, "gpu-1") and stage.state("gpu-1") == "")
    await stage.rest(60)
    await stage.label("gpu-1", names.DEPLOY_DRIVER, None)
    await stage.rest(60)
    assert stage.driver("gpu-1") == OLD
    assert not driver_pods(stage, "gpu-1")
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 1)
    await at_rest(stage, NEW)


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": 0})
async def test_a_node_that_waits_without_a_driver_pod_says_why_it_has_none(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    await stage.switch_off_at_once()
    await stage.until(lambda: not driver_pods(stage))
    await set_driver(stage, {"enabled": True, "version": NEW})
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    told = await explanation_of(stage, "gpu-1")
    assert reason_of(told) == "maxUnavailable allows 0: no node may be taken out of service"
    (note,) = (note for note in told.notes if "driver pod" in note)
    assert note.startswith("no driver pod is made here until the node is emptied")
    assert "If that is loaded still" in note
    assert told.driver == f"{OLD}? -> {NEW}", "discovery said so last, and nobody vouches for it"
