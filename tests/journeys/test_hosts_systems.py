"""Hosts of vGPUs in a fleet with several operating systems: the image of their driver stays, whatever comes and goes beside them.
Judged from the machines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.fleet import gpu_node
from tests.journeys.stage import POLICY, Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS
from tests.journeys.test_hosts_switched import MANAGED, loaded, managed, with_manager
from tests.journeys.test_node_workload import end, runs, torn
from tests.journeys.test_systems import become

OFF = {"enabled": False}
PRECOMPILED = {"usePrecompiled": True, "version": "580"}


@pytest.mark.parametrize(("driver", "comes_first"), [(OFF, False), (PRECOMPILED, True)])
def test_a_machine_keeps_its_driver_beside_nodes_of_another_system(driver: dict[str, object], comes_first: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await with_manager(stage)
        manager = stage.get("daemonsets.apps", names.VGPU_MANAGER_APP)["metadata"]["generation"]
        if comes_first:
            stage.sandbox.add_node(gpu_node("gpu-0", os="ubuntu24.04"))
            await stage.rest(60)
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": driver}})
        await stage.rest(300)
        if not comes_first:
            stage.sandbox.add_node(gpu_node("gpu-0", os="ubuntu24.04"))
            await stage.rest(300)
        assert (torn(stage), runs(stage, "vm"), loaded(stage)) == ([], True, [MANAGED, MANAGED])
        assert stage.get("daemonsets.apps", names.VGPU_MANAGER_APP)["metadata"]["generation"] == manager

    scenario()


@pytest.mark.parametrize("another", [True, False])
@pytest.mark.parametrize("driver", [OFF, {}])
def test_a_machine_keeps_its_driver_while_discovery_does_not_say_what_hosts_run(driver: dict[str, object], another: bool) -> None:
    """As where node feature discovery is installed anew."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        if another:
            stage.sandbox.add_node(gpu_node("gpu-4", os="ubuntu24.04"))
            await stage.rest(60)
        await with_manager(stage)
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": driver}})
        await stage.rest(300)
        before = stage.get("daemonsets.apps", names.VGPU_MANAGER_APP)["metadata"]["generation"]
        labels = {key: value for key, value in stage.labels("gpu-1").items() if key in (names.NFD_OS_ID, names.NFD_OS_VERSION)}
        for lost in (dict.fromkeys(labels), labels):
            for node in ("gpu-1", "gpu-2", "gpu-3"):
                await stage.user.patch_merge(resources.NODES, node, {"metadata": {"labels": lost}})
            await stage.rest(300)
            assert (torn(stage), runs(stage, "vm"), loaded(stage)) == ([], True, [MANAGED, MANAGED])
        assert stage.get("daemonsets.apps", names.VGPU_MANAGER_APP)["metadata"]["generation"] == before
        assert "operating system" not in stage.condition()["message"]

    scenario()


def system(stage: Stage) -> str:
    """Return for which operating system the vGPU manager is."""
    ds = stage.get("daemonsets.apps", names.VGPU_MANAGER_APP)
    return str(ds["spec"]["template"]["spec"]["containers"][0]["image"]).rpartition("-")[2]


async def upgraded(stage: Stage) -> None:
    """Have the operator find what one of before left: the vGPU manager was for the system of nodes for containers."""
    await stage.kill_operator()
    for node in HOSTS:
        await become(stage, node, "ubuntu", "20.04")
    await stage.restart_operator()


async def deleted(stage: Stage) -> None:
    await become(stage, "gpu-1", "ubuntu", "20.04")
    await stage.rest(60)
    await stage.user.delete(resources.DAEMON_SETS, names.VGPU_MANAGER_APP, names.DEFAULT_NAMESPACE, propagation="Orphan")


async def gone(stage: Stage) -> None:
    await become(stage, "gpu-1", "ubuntu", "20.04")
    await stage.rest(60)
    await stage.user.delete(resources.NODES, "gpu-2")


@pytest.mark.parametrize("change", [upgraded, deleted, gone])
def test_the_vgpu_manager_stays_for_its_system_under_virtual_machines(change: Callable[[Stage], Awaitable[None]]) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.label("gpu-3", names.NFD_OS_VERSION, "22.04")
        await stage.installed()
        await with_manager(stage)
        await change(stage)
        await stage.rest(600)
        assert (system(stage), torn(stage), runs(stage, "vm")) == ("ubuntu22.04", [], True)
        await end(stage, "vm")
        await stage.rest(600)
        hosts = {node["metadata"]["name"] for node in stage.gpu_node_objects()} & set(HOSTS)
        assert (system(stage), managed(stage)) == ("ubuntu22.04" if change is deleted else "ubuntu20.04", hosts)

    scenario()


@pytest.mark.parametrize(("silent", "pre_installed"), [(HOSTS, ""), (("gpu-2", "gpu-3"), "gpu-1")])
def test_a_driver_stays_for_its_system_while_none_of_its_nodes_says_which_it_has(
        silent: tuple[str, ...], pre_installed: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.label("gpu-3", names.NFD_OS_VERSION, "22.04")
        await stage.installed()
        if pre_installed:
            await stage.label(pre_installed, names.DEPLOY_DRIVER, "pre-installed")
        else:
            await with_manager(stage)
        for node in silent:
            await stage.label(node, names.NFD_OS_ID, None)
            await stage.label(node, names.NFD_OS_VERSION, None)
        await stage.rest(600)
        assert (stage.policy_status()["state"], torn(stage)) == ("ready", [])

    scenario()
