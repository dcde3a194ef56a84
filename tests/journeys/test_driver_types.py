"""NVIDIADrivers that select nodes for which their type of driver is not: containers never get the driver of a host, nor hosts one
for containers. Nothing is taken away for it, and each node says what it lacks. Judged from the machines.
"""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.journeys.looking import condition_of, explanation_of, headline_of, reason_of, screen_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS, OURS, hosts, with_machine
from tests.journeys.test_hosts_switched import with_manager
from tests.journeys.test_moves import Watcher, with_one_owner, with_workloads
from tests.journeys.test_node_workload import end, runs, torn
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
    assert "3 that no driver is for" in condition_of(stage)[2]
    assert stage.policy_status()["state"] == "ready"


@on_stage(gpu_nodes=3)
async def test_nodes_whose_nvidiadriver_becomes_one_for_hosts_serve_on(stage: Stage) -> None:
    watch = await with_one_owner(stage)
    await recreated(stage)
    await stage.rest(3600)
    await serves_on(stage, watch)
    assert "0 of 3 nodes up to date, 3 held" in await headline_of(stage)
    assert ("  driver of NVIDIADriver default 0/0  it is of type vgpu-host-manager, and none of its 3 nodes is a host of vGPUs"
            in await screen_of(stage))
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
def test_a_node_in_mid_upgrade_whose_nvidiadriver_becomes_one_for_hosts_is_given_back_with_a_driver(state: State) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        watch = await with_one_owner(stage)
        await set_driver(stage, "default", {"version": NEW})
        await stage.until(lambda: state in stage.states().values(), within=900)
        node = next(name for name, label in stage.states().items() if label == state)
        await recreated(stage)
        await stage.rest(3600)
        bare = [] if driver_pods(stage, node) else [node]
        assert (stage.cordons(), watch.torn, torn(stage)) == (bare, [], []), "without a driver it offers GPUs for nothing"
        assert {name for name, label in stage.states().items() if label} == {*bare}
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


SELECT = "let one with driverType: vgpu-host-manager select it"
OF_GPU = f"NVIDIADriver default selects it and is of type gpu, {SELECT}"


async def told_of(stage: Stage, node: str = "gpu-1") -> str:
    """Return what a person reads of a host's driver."""
    return (await explanation_of(stage, node)).unmanaged.removeprefix("its GPUs serve virtual machines").removeprefix("; ")


async def be_hosts(stage: Stage) -> None:
    for node in HOSTS:
        await stage.label(node, names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})


@on_stage(gpu_nodes=3)
async def test_hosts_that_only_an_nvidiadriver_for_containers_selects_keep_theirs_and_say_so(stage: Stage) -> None:
    await with_machine(stage)
    for node in HOSTS:
        await stage.label(node, "pool", None)
    kept = f"it keeps the driver of NVIDIADriver a, which does not select it any more: {OF_GPU}"
    await stage.rest(300)
    assert (hosts(stage), runs(stage, "vm"), torn(stage)) == (set(HOSTS), True, [])
    assert [await told_of(stage, node) for node in HOSTS] == [kept, kept]
    assert (await explanation_of(stage, "gpu-1")).policy.endswith("default, which is for this node, is of type gpu")
    await end(stage, "vm")
    await stage.rest(300)
    assert ([stage.driver(node) for node in HOSTS], await told_of(stage)) == ([OLD, OLD], kept)
    await make(stage, nvidia_driver("b", **OURS))
    for node in HOSTS:
        await stage.label(node, "pool", "b")
    await stage.until(lambda: {stage.labels(node)[names.DRIVER_OWNER] for node in HOSTS} == {"b"})
    await stage.until(lambda: [stage.driver(node) for node in HOSTS] == [OLD, OLD] and hosts(stage) == set(HOSTS))
    assert await told_of(stage) == ""


@pytest.mark.parametrize("default", [True, False])
def test_hosts_whose_nvidiadriver_left_its_driver_behind_say_whose_it_was(default: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await with_machine(stage, default=default)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Orphan")
        await end(stage, "vm")
        await stage.rest(300)
        assert [stage.driver(node) for node in HOSTS] == [OLD, OLD]
        why = OF_GPU if default else f"no NVIDIADriver selects it, {SELECT}"
        assert await told_of(stage) == f"it keeps the driver of NVIDIADriver a, which is gone: {why}"

    story()


@on_stage(gpu_nodes=3)
async def test_hosts_of_an_nvidiadriver_that_becomes_one_for_containers_keep_theirs_while_it_is_used(stage: Stage) -> None:
    await with_machine(stage, default=False)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Orphan")
    await stage.rest(2)
    await make(stage, nvidia_driver("a"))
    await stage.rest(300)
    assert (runs(stage, "vm"), stage.driver("gpu-1"), torn(stage)) == (True, OLD, [])
    why = f"NVIDIADriver a selects it and is of type gpu, {SELECT}"
    assert await told_of(stage) == f"it keeps the driver of an earlier NVIDIADriver a: {why}"


@on_stage(gpu_nodes=3)
async def test_hosts_without_a_driver_say_why_there_is_none(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await be_hosts(stage)
    await stage.rest(300)
    assert ([stage.driver(node) for node in HOSTS], stage.driver("gpu-3")) == (["", ""], OLD)
    assert await told_of(stage) == f"it has no driver: {OF_GPU}"
    await make(stage, *(nvidia_driver(name, nodeSelector={names.WORKLOAD_CONFIG: "vm-vgpu"}, **OURS) for name in "xy"))
    await stage.rest(300)
    assert await told_of(stage) == "it has no driver: multiple NVIDIADrivers match the same node gpu-1: [x y]"
    for name in ("x", "y", "default"):
        await stage.user.delete(resources.NVIDIA_DRIVERS, name)
    await stage.rest(300)
    assert await told_of(stage) == f"it has no driver: no NVIDIADriver selects it, {SELECT}"


@on_stage(gpu_nodes=3)
async def test_hosts_whose_driver_went_do_not_say_that_the_one_of_a_pod_is_there(stage: Stage) -> None:
    await with_machine(stage, default=False)
    await end(stage, "vm")
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
    await stage.until(lambda: not hosts(stage))
    await stage.rest(300)
    assert stage.driver("gpu-1") == ""
    assert await told_of(stage) == f"it has no driver: no NVIDIADriver selects it, {SELECT}"


@on_stage(gpu_nodes=3)
async def test_hosts_of_a_clusterpolicy_say_that_the_vgpu_manager_is_off(stage: Stage) -> None:
    await stage.installed()
    await be_hosts(stage)
    await stage.rest(300)
    assert await told_of(stage) == "it has no driver: vgpuManager.enabled is not true in the ClusterPolicy"
    await with_manager(stage)
    assert await told_of(stage) == ""


@on_stage(gpu_nodes=2)
async def test_hosts_for_passthrough_need_no_nvidiadriver(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, "vm-passthrough")
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await make(stage, nvidia_driver("default", default=True))
    await stage.rest(300)
    assert (stage.driver("gpu-1"), await told_of(stage)) == ("vfio-pci", "")
