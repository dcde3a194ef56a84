"""An NVIDIADriver that was deleted by mistake: its driver goes from its nodes, and people who would stop that are told how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward.cli.nodes import skip_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.errors import GpuwardError, ServerError
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.cli.verbs import said
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_moves import uids, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_removed import DEFAULT, NVIDIADRIVER, installed, remove
from tests.journeys.test_waves import abort


@on_stage(gpu_nodes=3)
async def test_a_verb_that_cannot_stop_it_names_what_can(stage: Stage) -> None:
    await installed(stage, NVIDIADRIVER, out=1)
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await remove(stage, NVIDIADRIVER)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    told = "NVIDIADriver default was deleted, and its driver goes from its nodes"
    for driver in ("", DEFAULT):
        with pytest.raises(GpuwardError, match=told):
            await said(pause_rollouts(stage.user, driver, dry_run=False))
        with pytest.raises(GpuwardError, match=told):
            await abort(stage, driver)
    kept = next(name for name, state in stage.states().items() if state == State.UPGRADE_REQUIRED)
    await said(skip_nodes(stage.user, [kept], undo=False, dry_run=False))
    await stage.rest(1800)
    assert [node for node in stage.states() if driver_pods(stage, node)] == [kept]
    assert (stage.driver(kept), stage.cordoned(kept)) == (OLD, False)


@pytest.mark.parametrize("another", [True, False])
def test_a_pause_holds_that_could_not_be_noted_before_the_deletion(another: bool) -> None:
    """The API server takes no DaemonSet for a while, so that what outlives the NVIDIADriver is older than the pause."""
    refusing = [False]

    def no_daemonsets(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if refusing[0] and request.method in ("PUT", "PATCH") and "/daemonsets/" in request.path:
            return refusal(ServerError("etcd has no leader"))
        return proceed()

    @on_stage(gpu_nodes=2, interfere=no_daemonsets)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await label_pools(stage, b="gpu-1 gpu-2")
        await make(stage, nvidia_driver("b"), *[nvidia_driver("z", {"autoUpgrade": False}, default=True)] * another)
        await stage.installed()
        watcher = await with_workloads(stage)
        before = uids(stage), {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        refusing[0] = True
        await set_driver(stage, "b", {"upgradePolicy": {"autoUpgrade": False}})
        await stage.rest(30)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "b")
        await stage.rest(30)
        refusing[0] = False
        for _ in range(2):
            await stage.rest(600)
            assert (uids(stage), {pod["metadata"]["uid"] for pod in stage.workload_pods()}) == before
            assert (watcher.torn, stage.cordons(), stage.hold("gpu-1")) == ([], [], "DriverKept")
            await stage.restart_operator()

    scenario()
