"""A rollout of several DaemonSets of which one cannot be written yet: its nodes still have the driver of before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, nvidia_driver, set_driver
from tests.journeys.test_rolloutpolicy import apply

ALL_AT_ONCE = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}


@on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_a_canary_whose_daemonset_is_not_written_yet_is_not_done_by_the_driver_of_before(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.user.create(resources.NVIDIA_DRIVERS, nvidia_driver("default", ALL_AT_ONCE, default=True))
    await stage.installed()
    apps = {pod["spec"]["nodeName"]: pod["metadata"]["labels"]["app"] for pod in driver_pods(stage)}
    app = apps["gpu-1"]
    assert set(apps.values()) != {app}

    def refuse(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        ours = request.method in ("PUT", "PATCH") and request.path.endswith(f"/daemonsets/{app}")
        return refusal(errors.ServerError("etcd has no leader")) if ours else proceed()

    await stage.label("gpu-1", "pool", "canary")
    await apply(stage, waves=[{"name": "canary", "nodeSelector": {"pool": "canary"}}])
    await stage.rest(5)
    stage.transport.interfere = refuse
    await set_driver(stage, "default", {"version": NEW})
    await stage.rest(60)
    assert (stage.drivers(), stage.cordons()) == ([OLD], [])
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.until(lambda: stage.finished(NEW), within=3600)


@pytest.mark.parametrize("precompiled", [False, True])
@pytest.mark.parametrize("system", ["sl-micro", "sle_hpc"])
def test_a_canary_of_one_operating_system_is_done_whatever_the_others_images_are_called(system: str, precompiled: bool) -> None:
    @on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await stage.label("gpu-2", names.NFD_OS_ID, system)
        await stage.label("gpu-2", names.NFD_OS_VERSION, "6.1")
        old, new = ("580", "590") if precompiled else (OLD, NEW)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        driver = nvidia_driver("default", ALL_AT_ONCE, default=True, version=old, usePrecompiled=precompiled)
        await stage.user.create(resources.NVIDIA_DRIVERS, driver)
        await stage.installed()
        await stage.label("gpu-1", "pool", "canary")
        await apply(stage, waves=[{"name": "canary", "nodeSelector": {"pool": "canary"}}])
        await set_driver(stage, "default", {"version": new})
        await stage.until(lambda: all(f":{new}-" in pod["spec"]["containers"][0]["image"] for pod in driver_pods(stage))
                          and len(driver_pods(stage)) == 2, within=3600)

    scenario()
