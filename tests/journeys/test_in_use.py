"""Driver pods that come under running GPU pods: their drivers cannot load before these have gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.upgrade.remedies import remedies
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage, policy
from tests.journeys.test_driver_truth import replace_driver_pod, rollout
from tests.journeys.test_moves import Watcher, with_one_owner, with_precompiled, with_workloads
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}


async def work(stage: Stage) -> dict[str, str]:
    """Run a GPU pod on every node; return what is on which node."""
    await stage.deploy("inf", stage.gpu_nodes)
    return users(stage)


def users(stage: Stage) -> dict[str, str]:
    """Return the GPU pods by the uid."""
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in stage.workload_pods("inf")}


async def brought_about(stage: Stage, version: str) -> None:
    """Wait until every node runs a version, one after the other."""
    stage.watch_limits()
    await stage.until(lambda: stage.finished(version) and rollout(stage)[:2] == ("True", "UpToDate"), within=3600)
    assert stage.most_in_progress == 1
    assert not stage.cordons()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_policy_that_comes_back_with_another_version_upgrades_nodes_in_turn(stage: Stage) -> None:
    await stage.installed()
    await work(stage)
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(30)
    older = policy(upgrade=ONE)
    older["spec"]["driver"]["version"] = NEW
    await stage.user.create(resources.CLUSTER_POLICIES, older)
    await brought_about(stage, NEW)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_driver_that_is_switched_off_and_on_with_another_version_is_upgraded_in_turn(stage: Stage) -> None:
    await stage.installed()
    await work(stage)
    await stage.switch_off_at_once()
    await stage.rest(30)
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": {"enabled": True, "version": NEW}}})
    await brought_about(stage, NEW)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_late_nvidiadriver_upgrades_nodes_that_were_nobodys(stage: Stage) -> None:
    await stage.installed()
    await work(stage)
    await label_pools(stage, x="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(30)
    for node in ("gpu-1", "gpu-2"):
        await replace_driver_pod(stage, node)
    await stage.rest(30)
    await make(stage, nvidia_driver("x", ONE, version=NEW))
    await stage.until(lambda: stage.finished(NEW), within=3600)
    assert not stage.cordons()


@pytest.mark.parametrize("state", [State.POD_DELETION_REQUIRED, State.POD_RESTART_REQUIRED])
def test_a_node_that_registers_again_in_mid_upgrade_is_upgraded(state: State) -> None:
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await work(stage)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == state)
        stage.sandbox.store.delete("nodes", None, "gpu-1")
        stage.sandbox.register_node("gpu-1")
        await stage.until(lambda: stage.finished(NEW) and rollout(stage)[:2] == ("True", "UpToDate"), within=3600)
        assert not stage.cordons()

    story()


async def by_policy(stage: Stage) -> tuple[Watcher, str]:
    await stage.installed()
    watcher = await with_workloads(stage)
    await stage.upgrade_to(NEW)
    return watcher, NEW


async def by_nvidia_driver(stage: Stage) -> tuple[Watcher, str]:
    watcher = await with_one_owner(stage)
    await set_driver(stage, "default", {"version": NEW})
    return watcher, NEW


async def for_one_kernel(stage: Stage) -> tuple[Watcher, str]:
    watcher = await with_precompiled(stage)
    await stage.patch_policy("driver/version", "590")
    return watcher, "590"


@pytest.mark.parametrize("begin", [by_policy, by_nvidia_driver, for_one_kernel])
@pytest.mark.parametrize("state", [State.POD_DELETION_REQUIRED, State.POD_RESTART_REQUIRED])
@pytest.mark.parametrize("operator", ["runs", "away"])
def test_a_node_that_registers_again_a_while_later_is_emptied_before_its_driver_comes(
    begin: Callable[[Stage], Awaitable[tuple[Watcher, str]]], state: State, operator: str
) -> None:
    """Its driver pod has gone with its Node, and the driver is still loaded: its GPU pod is back before the next one can come."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        watcher, version = await begin(stage)
        await stage.until(lambda: state in stage.states().values())
        node = next(name for name, now in stage.states().items() if now == state)
        if operator == "away":
            await stage.kill_operator()
        await stage.user.delete(resources.NODES, node)
        await stage.rest(5)
        stage.sandbox.register_node(node)
        if operator == "away":
            await stage.rest(20)
            await stage.restart_operator()
        await stage.until(lambda: stage.finished(version) and rollout(stage)[:2] == ("True", "UpToDate"), within=3600)
        assert (stage.cordons(), watcher.torn) == ([], [])
        assert all(said not in event for event in stage.events(node, "Warning") for said in ("does not start", "no node starts"))

    story()


@pytest.mark.parametrize("late", [False, True], ids=["installed", "upgraded"])
def test_who_takes_a_driver_pod_away_under_gpu_pods_is_told_of_them_and_they_stay(late: bool) -> None:
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()
        version = NEW if late else OLD
        if late:
            await stage.upgrade_to(NEW)
            await stage.upgraded(NEW)
        before = await work(stage)
        stage.sandbox.machine("gpu-1").digest = ""  # as of drivers that do not tell what they were made from
        await replace_driver_pod(stage, "gpu-1")
        await stage.rest(900)
        assert users(stage) == before
        (pod,) = [pod["metadata"]["name"] for pod in stage.workload_pods("inf", "gpu-1")]
        driver = stage.driver_pod("gpu-1")["metadata"]["name"]
        said = sentence(stage.operator.plan.holds["gpu-1"])
        assert said == (f"driver pod {driver} cannot load its driver while pods run on the one that was loaded before: "
                        f"{WORKLOAD_NAMESPACE}/{pod}")
        assert any(said in event for event in stage.events("gpu-1", "Warning"))
        assert (stage.state("gpu-1"), stage.cordons()) == (State.DONE, [])
        assert rollout(stage)[:2] == ("False", "DriversNotReady")
        assert "1 DriverInUse (gpu-1)" in rollout(stage)[2]
        snapshot = stage.operator.cluster.observe()
        upgrades = stage.operator.policies.read(snapshot).upgrades_of(snapshot.nodes["gpu-1"])
        (found,) = remedies(snapshot, upgrades, stage.clock.now(), "gpu-1")
        assert names.UPGRADE_REQUESTED in found.commands[0]
        patch = {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}}
        await stage.user.patch_merge(resources.NODES, "gpu-1", patch)
        await stage.until(lambda: stage.finished(version) and rollout(stage)[0] == "True", within=3600)

    story()


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_gpu_pods_that_end_by_themselves_let_the_driver_load_without_an_upgrade(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inf", 1, node="gpu-1")
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(30)
    await stage.user.create(resources.CLUSTER_POLICIES, policy(upgrade=ONE))
    await stage.patch_policy("driver/version", NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.UPGRADE_REQUIRED)
    stage.watch_limits()
    stage.sandbox.store.delete("deployments.apps", WORKLOAD_NAMESPACE, "inf")
    await stage.until(lambda: stage.finished(NEW) and rollout(stage)[0] == "True", within=3600)
    assert State.CORDON_REQUIRED not in stage.entered("gpu-1")
