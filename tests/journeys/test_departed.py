"""An NVIDIADriver that was deleted by mistake: its driver goes from its nodes, and people who would stop that are told how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuward.cli.nodes import skip_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.errors import GpuwardError, ServerError
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.store import Event
from tests.cli.verbs import said
from tests.journeys.looking import condition_of, headline_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_moves import uids, with_workloads
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver, set_driver
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


@pytest.mark.parametrize("name", [DEFAULT, "other"])
@pytest.mark.parametrize("gap", [1.0, 25.0])
def test_one_that_is_made_again_within_moments_empties_no_node_for_that(name: str, gap: float) -> None:
    """Under the same name no driver is another one; under another each node is emptied once, as it goes over."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver(DEFAULT, ALL_AT_ONCE, default=True))
        await stage.installed()
        watcher = await with_workloads(stage)
        before, gone = uids(stage), [0]

        def count(event: Event) -> None:
            gone[0] += event.type == "DELETED" and event.obj["metadata"]["namespace"] == WORKLOAD_NAMESPACE

        stage.sandbox.store.subscribe(count, "pods")
        await stage.user.delete(resources.NVIDIA_DRIVERS, DEFAULT)
        await stage.rest(gap)
        assert (gone[0], stage.cordons()) == (0, [])
        await make(stage, nvidia_driver(name, ALL_AT_ONCE, default=True))
        await stage.rest(60)
        await stage.until(lambda: stage.all_are(State.DONE) and not stage.cordons())
        assert (watcher.torn, stage.drivers(), gone[0]) == ([], [OLD], 0 if name == DEFAULT else 2)
        assert (uids(stage) == before) is (name == DEFAULT)

    scenario()


@on_stage(gpu_nodes=2)
async def test_one_that_is_not_made_again_loses_its_drivers_also_after_a_restart(stage: Stage) -> None:
    await installed(stage, NVIDIADRIVER, out=1)
    await remove(stage, NVIDIADRIVER)
    await stage.rest(20)
    assert stage.hold("gpu-1") == "DeletionUnseen"
    assert "upgrades are off" not in await headline_of(stage)
    assert (condition_of(stage)[1], "upgrades are off" in condition_of(stage)[2]) == ("Progressing", False)
    await stage.restart_operator()
    await stage.rest(20)
    assert [len(driver_pods(stage, node)) for node in ("gpu-1", "gpu-2")] == [1, 1]
    await stage.until(lambda: not driver_pods(stage))


@pytest.mark.parametrize("state", [State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED])
def test_a_node_under_way_is_not_said_to_be_paused_while_the_one_that_was_deleted_may_be_made_again(state: State) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, NVIDIADRIVER, out=1)
        await set_driver(stage, DEFAULT, {"version": NEW})
        await stage.until(lambda: any(stage.state(pod["spec"].get("nodeName", "gpu-1")) == state and NEW in str(pod["spec"])
                                      for pod in driver_pods(stage)))
        (node,) = (name for name, shown in stage.states().items() if shown == state)
        await remove(stage, NVIDIADRIVER)
        await stage.rest(10)
        assert (stage.state(node), stage.hold(node)) == (state, "DeletionUnseen")

    scenario()
