"""`gpuward cleanup` where a node is cordoned for its driver while pods wait for its GPUs: judged by what is loaded under them."""

from __future__ import annotations

from gpuward.kube import resources
from tests.journeys.stage import NEW, Stage, on_stage, policy
from tests.journeys.test_cleanup import POLICIES, cleanup, uninstall
from tests.journeys.test_nvidiadriver import driver_pods
from tests.journeys.test_removed import OF_POLICY, PRECOMPILED, installed, remove
from tests.journeys.test_withheld import torn, with_notebooks


@OF_POLICY
def test_no_pod_comes_to_a_driver_that_is_forgotten(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def play(stage: Stage) -> None:
        await installed(stage, mode)
        await with_notebooks(stage)
        (before,) = stage.sandbox.store.list(POLICIES)
        await remove(stage, mode)
        await stage.until(lambda: len(driver_pods(stage)) == 2)
        assert stage.cordons()
        await uninstall(stage)
        await cleanup(stage, timeout=60)
        assert not stage.cordons()
        await stage.rest(100)
        new = policy()
        version = "590" if mode == PRECOMPILED else NEW
        new["spec"] = {**before["spec"], "driver": {**before["spec"]["driver"], "enabled": True, "version": version}}
        await stage.user.create(resources.CLUSTER_POLICIES, new)
        await stage.restart_operator()
        await stage.until(lambda: torn(stage) or (stage.finished(version) and not stage.cordons()), within=3600)
        assert not torn(stage)

    play()
