"""Labels of NVIDIA's that people set by hand on a node whose GPUs are in use. Judged from the machines."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.states import State
from tests.journeys.looking import explanation_of, reason_of, status_of
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_discovery import lose_gpu
from tests.journeys.test_discovery_in_every_mode import MODES, ask_for, loaded, serving
from tests.journeys.test_moves import at_rest, uids, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods
from tests.journeys.test_removed import COMPILED, NVIDIADRIVER, installed
from tests.journeys.test_rolloutpolicy import apply

NODE = "gpu-2"


async def end(stage: Stage, node: str) -> None:
    """End the GPU pods of a node."""
    stage.sandbox.store.delete("deployments.apps", "ml", f"train-{node}")


@MODES
def test_operands_that_nobody_wants_stay_until_the_gpus_are_free(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        pods, drivers = uids(stage), loaded(stage)
        await stage.label(NODE, names.DEPLOY_OPERANDS, "false")
        await stage.until(lambda: stage.hold(NODE) == "OperandsKept", within=60)
        await stage.restart_operator()
        await stage.rest(1800)
        assert (uids(stage), loaded(stage), watcher.torn) == (pods, drivers, [])
        assert stage.hold(NODE) == "OperandsKept"
        assert "keeps its operands" in reason_of(await explanation_of(stage, NODE))
        await end(stage, NODE)
        await stage.until(lambda: not driver_pods(stage, NODE), within=120)
        await stage.rest(60)
        assert (watcher.torn, stage.state(NODE), stage.cordons()) == ([], "", [])
        assert not stage.pods(names.DRIVER_APP, NODE)
        assert (len(uids(stage)), uids(stage) < pods) == (2, True)
        await stage.label(NODE, names.DEPLOY_OPERANDS, None)
        await stage.until(lambda: loaded(stage) == drivers and stage.all_are(State.DONE))
        assert watcher.torn == []

    scenario()


@MODES
def test_operands_go_at_once_from_a_node_that_nothing_uses(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        await end(stage, NODE)
        await stage.rest(60)
        await stage.label(NODE, names.DEPLOY_OPERANDS, "false")
        await stage.until(lambda: not driver_pods(stage, NODE), within=30)
        assert (watcher.torn, len(uids(stage))) == ([], 2)

    scenario()


@on_stage(gpu_nodes=2)
async def test_with_remove_at_once_operands_go_under_pods_as_with_nvidias_operator(stage: Stage) -> None:
    watcher = await serving(stage, COMPILED)
    await apply(stage, removeAtOnce=True)
    await stage.label(NODE, names.DEPLOY_OPERANDS, "false")
    await stage.until(lambda: not driver_pods(stage, NODE), within=30)
    assert watcher.torn


@pytest.mark.parametrize("mode", [COMPILED, NVIDIADRIVER])
def test_a_pod_that_a_late_watch_does_not_show_keeps_its_driver(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        stage.sandbox.api.watch_delay = lambda resource: 60.0 if resource == "pods" else 0.01
        watcher, before = await with_workloads(stage), uids(stage)
        await stage.label(NODE, names.DEPLOY_OPERANDS, "false")
        await stage.rest(300)
        assert (watcher.torn, uids(stage)) == ([], before)

    scenario()


@MODES
def test_an_upgrade_that_empties_such_a_node_leaves_it_without_operands(mode: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        await stage.label(NODE, names.DEPLOY_OPERANDS, "false")
        await stage.rest(60)
        await ask_for(stage, mode, "590" if "recompiled" in mode else "595.58.03")
        await stage.until(lambda: not driver_pods(stage, NODE), within=3600)
        others = [node for node in stage.states() if node != NODE]
        await stage.until(lambda: all(stage.state(node) == State.DONE for node in others) and not stage.cordons(), within=3600)
        assert (watcher.torn, stage.state(NODE)) == ([], "")
        assert all(stage.driver(node) not in ("", OLD, "580") for node in others)

    scenario()


@MODES
@pytest.mark.parametrize("value", ["false", None])
@pytest.mark.parametrize("seen", [True, False])
def test_a_node_that_somebody_says_has_no_gpu_keeps_its_driver_under_pods(mode: str, value: str | None, seen: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        pods, drivers = uids(stage), loaded(stage)
        if not seen:
            await lose_gpu(stage, NODE)
        await stage.label(NODE, names.GPU_PRESENT, value)
        await stage.rest(1800)
        assert (uids(stage), loaded(stage), watcher.torn) == (pods, drivers, [])
        if seen:
            await at_rest(stage, watcher)
            assert stage.labels(NODE)[names.GPU_PRESENT] == "true"
        else:
            assert any("label nvidia.com/gpu.present" in note and note.endswith("goes once no pod uses its GPUs")
                       for note in (await explanation_of(stage, NODE)).notes)
            await end(stage, NODE)
            await stage.until(lambda: not driver_pods(stage, NODE), within=120)
            assert watcher.torn == []

    scenario()


@MODES
def test_a_driver_that_nobody_wants_leaves_pods_on_what_is_loaded_and_comes_back_under_them(mode: str) -> None:
    """The DaemonSet's controller asks nobody; what is loaded stays, and people read so."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await serving(stage, mode)
        drivers, users = loaded(stage), {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        await stage.label(NODE, names.DEPLOY_DRIVER, "false")
        await stage.until(lambda: not driver_pods(stage, NODE), within=120)
        await stage.rest(600)
        found = await explanation_of(stage, NODE)
        assert "its label nvidia.com/gpu.deploy.driver=false says that it is to have no driver" in reason_of(found)
        assert "pods run on the driver that is loaded" in reason_of(found)
        told = f"{NODE} has no driver pod, as the label nvidia.com/gpu.deploy.driver=false says, and pods there use GPUs"
        assert any(told in one for one in (await status_of(stage))["warnings"])
        (remedy,) = found.remedies
        assert remedy.commands == (f"kubectl label node {NODE} nvidia.com/gpu.deploy.driver-",)
        await stage.label(NODE, names.DEPLOY_DRIVER, None)
        await stage.until(lambda: stage.all_are(State.DONE) and len(uids(stage)) == 2)
        assert loaded(stage) == drivers
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == users

    scenario()


@MODES
def test_an_emptied_node_that_is_to_have_no_driver_is_told_of_while_it_offers_gpus(mode: str) -> None:
    """The device plugin keeps the modules loaded, and the libraries have gone: what comes there does not start."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await serving(stage, mode)
        await end(stage, NODE)
        await stage.rest(60)
        await stage.label(NODE, names.DEPLOY_DRIVER, "false")
        await stage.until(lambda: not driver_pods(stage, NODE), within=120)
        await stage.rest(60)
        assert stage.node(NODE)["status"]["allocatable"]["nvidia.com/gpu"] != "0"
        offers = f"{NODE} offers GPUs that no driver pod serves: gpuward explain {NODE}"
        assert offers in (await status_of(stage))["warnings"]
        assert any("the node offers its GPUs: cordon and reboot" in note for note in (await explanation_of(stage, NODE)).notes)
        stage.sandbox.reboot(NODE)
        await stage.rest(300)
        assert (await status_of(stage))["warnings"] == []

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_node_whose_driver_label_is_mistyped_is_told_of_while_it_offers_gpus(stage: Stage) -> None:
    await serving(stage, COMPILED)
    await stage.label(NODE, names.DEPLOY_DRIVER, "ture")
    await stage.until(lambda: not driver_pods(stage, NODE), within=120)
    await stage.rest(60)
    assert f"{NODE} offers GPUs that no driver pod serves: gpuward explain {NODE}" in (await status_of(stage))["warnings"]
    assert any("a driver comes once its label is right; until then `kubectl cordon`" in note
               for note in (await explanation_of(stage, NODE)).notes)
