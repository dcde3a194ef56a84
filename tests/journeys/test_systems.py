"""A fleet with two operating systems, whose ClusterPolicy's driver is for one: it stays so while people change their mind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from tests.journeys.stage import OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver

Change = Callable[[Stage], Awaitable[None]]


async def _set(stage: Stage, driver: Object) -> None:
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": driver}})


def to_and_fro(there: Object, back: Object) -> Change:
    async def change(stage: Stage) -> None:
        await _set(stage, there)
        await stage.rest(0.5)
        await _set(stage, back)
    return change


async def deleted(stage: Stage) -> None:
    await stage.user.delete(resources.DAEMON_SETS, names.DRIVER_APP, names.DEFAULT_NAMESPACE, propagation="Orphan")


@pytest.mark.parametrize("change", [
    deleted,
    to_and_fro({"enabled": False}, {"enabled": True}),
    to_and_fro({"usePrecompiled": True, "version": "580"}, {"usePrecompiled": False, "version": OLD}),
    to_and_fro({"useNvidiaDriverCRD": True}, {"useNvidiaDriverCRD": False}),
], ids=["deleted", "off", "precompiled", "nvidiadrivers"])
def test_a_daemonset_that_is_made_anew_is_for_the_system_of_the_drivers_that_run(change: Change) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 0})
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await make(stage, nvidia_driver("default", default=True))
        await stage.label("gpu-1", names.NFD_OS_VERSION, "24.04")
        for node in stage.states():
            stage.run_pod(f"training-{node}", node, owned=True)
        await stage.rest(60)
        image = stage.driver_pod("gpu-2")["spec"]["containers"][0]["image"]
        await change(stage)
        await stage.rest(900)
        assert len(stage.workload_pods()) == 3
        assert stage.driver_pod("gpu-2")["spec"]["containers"][0]["image"] == image
        assert stage.cordons() == []

    scenario()
