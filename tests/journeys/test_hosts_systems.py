"""Hosts of vGPUs in a fleet with several operating systems: the image of their driver stays, whatever comes and goes beside them.
Judged from the machines.
"""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.fleet import gpu_node
from tests.journeys.stage import POLICY, Stage, on_stage
from tests.journeys.test_hosts_switched import MANAGED, loaded, with_manager
from tests.journeys.test_node_workload import runs, torn

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
