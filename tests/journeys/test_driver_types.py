"""NVIDIADrivers that select nodes for which their type of driver is not: containers never get the driver of a host, nor hosts one
for containers. Nothing is taken away for it, and each node says what it lacks. Judged from the machines.
"""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.journeys.looking import condition_of, explanation_of, headline_of, reason_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_hosts_left import OURS
from tests.journeys.test_moves import Watcher, with_one_owner, with_workloads
from tests.journeys.test_node_workload import torn
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, make, nvidia_driver, set_driver

NODES = ("gpu-1", "gpu-2", "gpu-3")
WHY = "NVIDIADriver default is of type vgpu-host-manager, and this node runs containers"


async def recreated(stage: Stage) -> None:
    """Make the default NVIDIADriver anew, of the type for hosts: `driverType` cannot be edited."""
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True, **OURS))


async def serves_on(stage: Stage, watch: Watcher) -> None:
    """See that each node has the driver that it had, with its workloads, and says that no other comes."""
    assert (stage.drivers(), stage.cordons(), watch.torn, torn(stage)) == ([OLD], [], [], [])
    assert len(stage.workload_pods()) == len(NODES)
    for node in NODES:
        told, (pod,) = await explanation_of(stage, node), driver_pods(stage, node)
        assert reason_of(told) == f"this node gets no driver pod after {pod['metadata']['name']}, which runs on: {WHY}"
        assert stage.states()[node] == ""
    assert condition_of(stage)[:2] == ("False", "DriversNotReady")
    assert "3 WrongDriverType (gpu-1, gpu-2, gpu-3)" in condition_of(stage)[2]
    assert "3 that get no driver pod" in condition_of(stage)[2]
    assert stage.policy_status()["state"] == "ready"


@on_stage(gpu_nodes=3)
async def test_nodes_whose_nvidiadriver_becomes_one_for_hosts_serve_on(stage: Stage) -> None:
    watch = await with_one_owner(stage)
    await recreated(stage)
    await stage.rest(3600)
    await serves_on(stage, watch)
    assert "0 of 3 nodes up to date, 3 held" in await headline_of(stage)
    for node in NODES:
        stage.sandbox.store.delete("deployments.apps", WORKLOAD_NAMESPACE, f"train-{node}")
    await stage.rest(1800)
    assert (stage.drivers(), stage.cordons()) == ([OLD], [])
    await stage.restart_operator()
    await stage.rest(600)
    assert [stage.hold(node) for node in NODES] == ["WrongDriverType"] * 3


@on_stage(gpu_nodes=3)
async def test_nodes_that_go_from_the_clusterpolicy_to_an_nvidiadriver_for_hosts_serve_on(stage: Stage) -> None:
    await stage.installed()
    watch = await with_workloads(stage)
    await make(stage, nvidia_driver("default", ALL_AT_ONCE, default=True, **OURS))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(3600)
    await serves_on(stage, watch)


@on_stage(gpu_nodes=3)
async def test_new_nodes_whose_nvidiadriver_is_for_hosts_say_why_they_get_no_driver_and_what_to_do(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True, **OURS))
    await stage.rest(600)
    told = await explanation_of(stage, "gpu-1")
    assert reason_of(told) == f"this node gets no driver pod: {WHY}"
    assert told.policy == ("ClusterPolicy cluster-policy: drivers are left to NVIDIADrivers, and default, which is for this "
                           "node, is of type vgpu-host-manager")
    assert not any("no driver pod is made here" in note for note in told.notes)
    assert stage.labels("gpu-1")[names.DRIVER_OWNER] == "default", "as NVIDIA's operator labels it"
    await make(stage, nvidia_driver("b", ALL_AT_ONCE))
    (label, *_) = (await explanation_of(stage, "gpu-1")).remedies
    assert label.commands == ("kubectl label node gpu-1 pool=b --overwrite",)
    for node in NODES:
        await stage.label(node, "pool", "b")
    await stage.until(lambda: stage.drivers() == [OLD] and condition_of(stage)[1] == "UpToDate", within=1800)
    assert stage.cordons() == []


@pytest.mark.parametrize("state", [State.POD_DELETION_REQUIRED, State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED])
def test_a_node_in_mid_upgrade_whose_nvidiadriver_becomes_one_for_hosts_gets_its_cordon_lifted(state: State) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        watch = await with_one_owner(stage)
        await set_driver(stage, "default", {"version": NEW})
        await stage.until(lambda: state in stage.states().values(), within=900)
        node = next(name for name, label in stage.states().items() if label == state)
        await recreated(stage)
        await stage.rest(3600)
        assert (stage.cordons(), watch.torn, torn(stage)) == ([], [], [])
        assert set(stage.states().values()) == {""}
        assert [stage.hold(name) for name in NODES] == ["WrongDriverType"] * 3
        assert {stage.driver(name) for name in NODES if name != node} == {OLD}, "no other is emptied"
        await make(stage, nvidia_driver("b", ALL_AT_ONCE, version=NEW))
        for name in NODES:
            await stage.label(name, "pool", "b")
        await stage.until(lambda: stage.drivers() == [NEW] and condition_of(stage)[1] == "UpToDate", within=7200)
        assert (stage.cordons(), watch.torn) == ([], [])

    story()


@on_stage(gpu_nodes=3)
async def test_a_driver_that_goes_with_its_nvidiadriver_stays_once_one_for_hosts_has_its_name(stage: Stage) -> None:
    watch = await with_one_owner(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.rest(8)
    await make(stage, nvidia_driver("default", default=True, **OURS))
    await stage.rest(7200)
    assert (stage.cordons(), watch.torn, torn(stage)) == ([], [], [])
    assert set(stage.states().values()) == {""}
    assert [stage.hold(name) for name in NODES] == ["WrongDriverType"] * 3
