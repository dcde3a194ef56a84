"""Nodes with containers that only an NVIDIADriver for hosts selects, and that have another one's driver: they keep that, are not
upgraded, and say why. Once the NVIDIADriver that they have it of is deleted it goes as everywhere. Judged from the machines.
"""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.looking import condition_of, explanation_of, headline_of, obey, reason_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_driver_types import recreated
from tests.journeys.test_hosts_left import OURS
from tests.journeys.test_moves import Watcher, with_one_owner
from tests.journeys.test_node_workload import torn
from tests.journeys.test_not_removed import DENIED, keep_daemonsets
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver, owners, set_driver

NODE = "gpu-1"
OTHERS = ("gpu-2", "gpu-3")
WHY = ("this node gets no driver pod but those of NVIDIADriver default, which is not for it any more, and no upgrade: "
       "NVIDIADriver h is of type vgpu-host-manager, and this node runs containers")
GONE = "this node gets no driver pod: NVIDIADriver h is of type vgpu-host-manager, and this node runs containers"


async def wrongly_selected(stage: Stage) -> Watcher:
    """Let an NVIDIADriver for hosts select a node with containers that another one drives."""
    watch = await with_one_owner(stage)
    await make(stage, nvidia_driver("h", **OURS))
    await stage.rest(30)
    await stage.label(NODE, "pool", "h")
    return watch


async def keeps_it(stage: Stage, watch: Watcher) -> None:
    """See that the node serves on with the driver that it had, and says why it gets no other."""
    assert (stage.driver(NODE), stage.cordons(), watch.torn, torn(stage)) == (OLD, [], [], [])
    assert f"train-{NODE}" in {pod["metadata"]["labels"]["app"] for pod in stage.workload_pods()}
    assert reason_of(await explanation_of(stage, NODE)) == WHY
    assert condition_of(stage)[:2] == ("False", "DriversNotReady")
    assert "2 of 3 nodes up to date" in condition_of(stage)[2]
    assert "1 that no driver is for" in condition_of(stage)[2]
    assert "held: 1 WrongDriverType (gpu-1)" in condition_of(stage)[2]
    assert "2 of 3 nodes up to date, 1 held" in await headline_of(stage)


@on_stage(gpu_nodes=3)
async def test_a_node_that_only_one_for_hosts_selects_keeps_the_driver_that_it_has_and_is_not_upgraded(stage: Stage) -> None:
    watch = await wrongly_selected(stage)
    await stage.rest(600)
    await keeps_it(stage, watch)
    await set_driver(stage, "default", {"version": NEW})
    await stage.rest(3600)
    await keeps_it(stage, watch)
    assert {stage.driver(node) for node in OTHERS} == {NEW}
    await stage.restart_operator()
    await stage.rest(600)
    await keeps_it(stage, watch)
    (remedy,) = (await explanation_of(stage, NODE)).remedies
    assert (remedy.do, remedy.commands) == (
        "remove the label by which NVIDIADriver h selects the node", ("kubectl label node gpu-1 pool-",))
    await obey(stage, remedy.commands[0])
    await stage.until(lambda: stage.drivers() == [NEW] and condition_of(stage)[1] == "UpToDate", within=3600)
    assert (stage.cordons(), watch.torn) == ([], [])


@on_stage(gpu_nodes=3)
async def test_upgrades_that_are_paused_are_not_what_it_waits_for(stage: Stage) -> None:
    watch = await wrongly_selected(stage)
    await set_driver(stage, "default", {"version": NEW, "upgradePolicy": {"autoUpgrade": False}})
    await stage.rest(600)
    assert (stage.hold(NODE), [stage.hold(node) for node in OTHERS]) == ("WrongDriverType", ["Paused", "Paused"])
    assert (stage.drivers(), stage.cordons(), watch.torn) == ([OLD], [], [])


@pytest.mark.parametrize("state", [State.UPGRADE_REQUIRED, State.POD_DELETION_REQUIRED])
def test_one_that_waits_for_its_turn_or_is_being_emptied_goes_no_further(state: State) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        watch = await with_one_owner(stage)
        await make(stage, nvidia_driver("h", **OURS))
        if state is State.UPGRADE_REQUIRED:
            stage.set_budget(f"train-{NODE}", 0)
        await set_driver(stage, "default", {"version": NEW})
        await stage.until(lambda: stage.state(NODE) == state)
        await stage.label(NODE, "pool", "h")
        await stage.rest(60)
        stage.set_budget(f"train-{NODE}", 1)
        await stage.rest(1800)
        assert (stage.driver(NODE), stage.cordons(), watch.torn, torn(stage)) == (OLD, [], [], [])
        assert reason_of(await explanation_of(stage, NODE)) == WHY
        assert State.POD_RESTART_REQUIRED not in stage.entered(NODE)
        await stage.label(NODE, "pool", None)
        await stage.until(lambda: stage.drivers() == [NEW] and condition_of(stage)[1] == "UpToDate", within=3600)

    story()


@on_stage(gpu_nodes=3)
async def test_one_whose_driver_pod_has_gone_is_brought_to_the_end(stage: Stage) -> None:
    watch = await with_one_owner(stage)
    await make(stage, nvidia_driver("h", **OURS))
    await set_driver(stage, "default", {"version": NEW})
    await stage.until(lambda: stage.state(NODE) == State.POD_RESTART_REQUIRED and not stage.driver(NODE))
    await stage.label(NODE, "pool", "h")
    await stage.rest(1800)
    assert (stage.drivers(), stage.cordons(), watch.torn) == ([NEW], [], [])
    assert reason_of(await explanation_of(stage, NODE)) == WHY


@pytest.mark.parametrize("waits", [False, True], ids=["at-rest", "in-the-queue"])
def test_one_whose_pods_run_on_a_driver_without_a_pod_is_not_emptied(waits: bool) -> None:
    """Somebody deletes the DaemonSet with its pods while no operator runs, and the next driver is another one."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        watch = await with_one_owner(stage)
        await make(stage, nvidia_driver("h", **OURS))
        if waits:
            stage.set_budget(f"train-{NODE}", 0)
        else:
            await stage.label(NODE, "pool", "h")
        await stage.rest(60)
        before = {pod["metadata"]["uid"] for pod in stage.workload_pods(node=NODE)}
        await stage.kill_operator()
        await set_driver(stage, "default", {"version": NEW})
        for ds in stage.sandbox.store.list("daemonsets.apps"):
            if ds["metadata"]["name"].startswith("nvidia-gpu-driver"):
                await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], names.DEFAULT_NAMESPACE)
        await stage.until(lambda: not driver_pods(stage))
        theirs = list(watch.torn), torn(stage)
        stage.operator = stage.new_operator()
        stage.begin_operator()
        if waits:
            await stage.until(lambda: stage.state(NODE) == State.UPGRADE_REQUIRED)
            await stage.label(NODE, "pool", "h")
            await stage.rest(60)
            stage.set_budget(f"train-{NODE}", 1)
        await stage.rest(3600)
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods(node=NODE)} == before
        assert (stage.driver(NODE), stage.cordons(), (watch.torn, torn(stage))) == (OLD, [], theirs)
        assert {stage.driver(node) for node in OTHERS} == {NEW}
        assert reason_of(await explanation_of(stage, NODE)) == WHY
        (remedy,) = (await explanation_of(stage, NODE)).remedies
        await obey(stage, remedy.commands[0])
        await stage.until(lambda: stage.drivers() == [NEW] and condition_of(stage)[1] == "UpToDate", within=3600)
        assert (stage.cordons(), watch.torn) == ([], theirs[0])

    story()


@on_stage(gpu_nodes=3)
async def test_its_driver_goes_with_the_nvidiadriver_that_it_is_of(stage: Stage) -> None:
    watch = await wrongly_selected(stage)
    await stage.rest(300)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.until(lambda: not driver_pods(stage), within=7200)
    await stage.rest(600)
    assert (stage.cordons(), watch.torn, set(stage.states().values())) == ([], [], {""})
    assert [stage.hold(node) for node in (NODE, *OTHERS)] == ["WrongDriverType", "NotSelected", "NotSelected"]
    assert reason_of(await explanation_of(stage, NODE)) == GONE
    assert owners(stage)[NODE] == "h", "as NVIDIA's operator labels it"
    assert "being removed" not in condition_of(stage)[2]
    there = [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")]
    assert not [name for name in there if name.startswith("nvidia-gpu-driver")]
    await make(stage, nvidia_driver("b"))
    (label, *_) = (await explanation_of(stage, NODE)).remedies
    await obey(stage, label.commands[0])
    await stage.until(lambda: stage.driver(NODE) == OLD and stage.state(NODE) == State.DONE, within=1800)


@on_stage(gpu_nodes=3)
async def test_nodes_are_not_up_to_date_by_a_daemonset_that_may_not_be_deleted(stage: Stage) -> None:
    watch = await with_one_owner(stage)
    stage.transport.interfere = keep_daemonsets
    await recreated(stage)
    await stage.rest(3600)
    status, _, message = condition_of(stage)
    assert (status, DENIED in message) == ("False", True)
    assert "apart from that 0 of 3 nodes up to date" in message
    assert reason_of(await explanation_of(stage, NODE)) == (
        "this node gets no driver pod but those of an earlier NVIDIADriver default, and no upgrade: NVIDIADriver default is of "
        "type vgpu-host-manager, and this node runs containers")
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.rest(1800)
    assert [stage.hold(node) for node in (NODE, *OTHERS)] == ["WrongDriverType"] * 3
    assert "which runs on: NVIDIADriver default" in reason_of(await explanation_of(stage, NODE))
    assert (stage.drivers(), stage.cordons(), watch.torn, torn(stage)) == ([OLD], [], [], [])
