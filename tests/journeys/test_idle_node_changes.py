"""Idle nodes that lose their driver by a change of their labels: they offer their GPUs until their device plugin has stopped, so
that they are cordoned for that moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.hosts import VM_RESOURCE
from kubesandbox.builders import deployment
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of, explanation_of, reason_of, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, gpu_template, on_stage
from tests.journeys.test_leaving_in_mid_upgrade import Unserved, by_nvidia_driver, by_policy, precompiled
from tests.journeys.test_moves import be_precompiled
from tests.journeys.test_node_workload import PASSTHROUGH, end, is_host, run_machine, runs, torn
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver

Begin = Callable[[Stage], Awaitable[Any]]
Change = Callable[[Stage, str], Awaitable[Any]]
NODE = "gpu-1"


async def _policys(stage: Stage) -> None:
    await stage.installed()


async def _nvidia_drivers(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    await stage.rest(60)


async def _to_a_host(stage: Stage, node: str) -> None:
    await stage.label(node, names.WORKLOAD_CONFIG, PASSTHROUGH)


async def _with_host(stage: Stage) -> None:
    """Install the stack, and let a node without workloads be a host of virtual machines."""
    await stage.installed()
    await _hosts_allowed(stage)
    await _to_a_host(stage, NODE)
    await stage.until(lambda: is_host(stage, NODE))
    await stage.rest(100)


async def _to_containers(stage: Stage, node: str) -> None:
    await stage.label(node, names.WORKLOAD_CONFIG, None)


async def _without_operands(stage: Stage, node: str) -> None:
    await stage.label(node, names.DEPLOY_OPERANDS, "false")


def ask_for_a_gpu(stage: Stage, node: str, name: str = "late", resource: str = "nvidia.com/gpu") -> None:
    """Run a pod of a Deployment that fits on one node alone, as soon as the scheduler lets it."""
    template = gpu_template(name)
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    template["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}, "requests": {resource: "1"}}
    stage.sandbox.apply(deployment(name, WORKLOAD_NAMESPACE, 1, template))


def where(stage: Stage, app: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in stage.workload_pods(app)]


async def _hosts_allowed(stage: Stage) -> None:
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.rest(60)


@pytest.mark.parametrize("gap", [0.03, 0.5, 1.8])
@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
@pytest.mark.parametrize("begin", [_policys, _nvidia_drivers, be_precompiled])
def test_no_pod_is_put_on_an_idle_node_whose_driver_goes(begin: Begin, leave: Change, gap: float) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        if leave is _to_a_host:
            await _hosts_allowed(stage)
        found = Unserved(stage)
        await leave(stage, NODE)
        await stage.rest(gap)
        ask_for_a_gpu(stage, NODE)
        await stage.until(lambda: not driver_pods(stage, NODE) and not stage.pods(names.DEVICE_PLUGIN_APP, NODE))
        await stage.rest(60)
        assert (torn(stage), found.pods, where(stage, "late"), stage.cordons()) == ([], [], [""], [])
        assert names.UPGRADE_STATE not in stage.labels(NODE)
        assert is_host(stage, NODE) is (leave is _to_a_host)

    scenario()


@pytest.mark.parametrize("gap", [0.03, 0.5, 1.5])
def test_no_virtual_machine_is_put_on_an_idle_host_that_becomes_a_node_for_containers(gap: float) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await _with_host(stage)
        await _to_containers(stage, NODE)
        await stage.rest(gap)
        ask_for_a_gpu(stage, NODE, "vm", VM_RESOURCE)
        await stage.until(lambda: stage.driver(NODE) == OLD and not stage.cordons())
        assert (torn(stage), where(stage, "vm")) == ([], [""])
        ask_for_a_gpu(stage, NODE)
        await stage.until(lambda: runs(stage, "late"))
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate")

    scenario()


@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
@pytest.mark.parametrize("begin", [by_policy, precompiled, by_nvidia_driver])
def test_no_pod_is_put_on_a_node_that_changes_in_the_moment_in_which_it_is_validated(begin: Begin, leave: Change) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        await stage.until(lambda: State.VALIDATION_REQUIRED in stage.states().values(), within=900)
        node = next(name for name, state in stage.states().items() if state == State.VALIDATION_REQUIRED)
        await stage.kill_operator()
        if leave is _to_a_host:
            await _hosts_allowed(stage)
        await leave(stage, node)
        await stage.rest(120)
        found = Unserved(stage)
        stage.operator = stage.new_operator()
        stage.begin_operator()
        await stage.until(lambda: not driver_pods(stage, node) and node not in stage.cordons(), within=900)
        await stage.rest(60)
        assert (torn(stage), found.pods, where(stage, f"train-{node}")) == ([], [], [""])

    scenario()


@pytest.mark.parametrize("gap", [0.03, 1.0, 1.8, 4.0])
@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
@pytest.mark.parametrize("begin", [_policys, _nvidia_drivers])
def test_a_pod_that_names_its_node_runs_with_its_driver_or_is_refused(begin: Begin, leave: Change, gap: float) -> None:
    """No cordon keeps it away. As long as the device plugin is there the pod gets GPUs, and the node stays what it is for it."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        if leave is _to_a_host:
            await _hosts_allowed(stage)
        await leave(stage, NODE)
        await stage.rest(gap)
        stage.run_pod("late", NODE)
        await stage.rest(300)
        assert (torn(stage), stage.cordons()) == ([], [])
        if not runs(stage, "late"):
            (pod,) = stage.workload_pods("late")
            assert pod["status"]["reason"] == "UnexpectedAdmissionError"
            assert not driver_pods(stage, NODE)
            return
        assert len(driver_pods(stage, NODE)) == len(stage.pods(names.DEVICE_PLUGIN_APP, NODE)) == 1
        assert stage.hold(NODE) == ("WorkloadKept" if leave is _to_a_host else "OperandsKept")
        assert "pod ml/late uses them" in reason_of(await explanation_of(stage, NODE))
        await end(stage, "late")
        await stage.until(lambda: not driver_pods(stage, NODE) and not stage.cordons())
        await stage.rest(60)
        assert (torn(stage), is_host(stage, NODE)) == ([], leave is _to_a_host)

    scenario()


@pytest.mark.parametrize("gap", [0.03, 1.0, 1.8, 4.0])
def test_a_virtual_machine_that_names_its_host_keeps_its_driver_or_is_refused(gap: float) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await _with_host(stage)
        await _to_containers(stage, NODE)
        await stage.rest(gap)
        run_machine(stage, "vm", NODE)
        await stage.rest(300)
        assert (torn(stage), stage.cordons()) == ([], [])
        if runs(stage, "vm"):
            assert is_host(stage, NODE)
            assert "pod ml/vm uses them" in reason_of(await explanation_of(stage, NODE))
            await end(stage, "vm")
        await stage.until(lambda: stage.driver(NODE) == OLD and condition_of(stage)[1] == "UpToDate")
        assert torn(stage) == []

    scenario()


@on_stage(gpu_nodes=2)
async def test_virtual_machines_under_which_no_driver_can_be_loaded_are_named(stage: Stage) -> None:
    """Somebody labels their host for containers while no operator runs."""
    await _with_host(stage)
    run_machine(stage, "vm", NODE)
    await stage.until(lambda: runs(stage, "vm"))
    labels = {key: value for key, value in stage.labels("gpu-2").items() if key.startswith(names.DEPLOY_PREFIX)}
    await stage.kill_operator()
    for key in [key for key in stage.labels(NODE) if key.startswith(names.DEPLOY_PREFIX)]:
        await stage.label(NODE, key, None)
    for key, value in labels.items():
        await stage.label(NODE, key, value)
    await _to_containers(stage, NODE)
    await stage.rest(120)
    stage.operator = stage.new_operator()
    stage.begin_operator()
    await stage.until(lambda: stage.hold(NODE) == "DriverInUse")
    told = await explanation_of(stage, NODE)
    assert reason_of(told).endswith("while pods run on the one that was loaded before: ml/vm")
    assert told.remedies[0].do == "end the virtual machines that have its GPUs, or wait for their end: ml/vm"
    assert runs(stage, "vm")
    await end(stage, "vm")
    await stage.until(lambda: stage.driver(NODE) == OLD and condition_of(stage)[1] == "UpToDate")


@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
def test_a_cordon_of_somebody_else_stays_and_one_of_ours_is_theirs_to_lift(leave: Change) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await _hosts_allowed(stage)
        await stage.cordon("gpu-2")
        for node in ("gpu-1", "gpu-2"):
            await leave(stage, node)
        await stage.until(lambda: stage.cordoned("gpu-1"))
        await stage.cordon("gpu-1", False)
        await stage.until(lambda: not driver_pods(stage))
        await stage.rest(60)
        assert stage.cordons() == ["gpu-2"]
        records = [stage.node(node)["metadata"]["annotations"][names.UPGRADE_RECORD] for node in ("gpu-1", "gpu-2")]
        assert not any("cordon" in record or "changing" in record for record in records)

    scenario()


async def _restarted(stage: Stage) -> None:
    await stage.restart_operator()


async def _taken_back(stage: Stage) -> None:
    await stage.label(NODE, names.DEPLOY_OPERANDS, None)
    await stage.label(NODE, names.WORKLOAD_CONFIG, None)


async def _without_a_policy(stage: Stage) -> None:
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)


async def _paused(stage: Stage) -> None:
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)


async def _another_driver(stage: Stage) -> None:
    await stage.patch_policy("driver/version", NEW)


@pytest.mark.parametrize("meanwhile", [_restarted, _taken_back, _without_a_policy, _paused, _another_driver])
@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
def test_our_cordon_does_not_stay_whatever_comes_meanwhile(leave: Change, meanwhile: Begin) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        if leave is _to_a_host:
            await _hosts_allowed(stage)
        found = Unserved(stage)
        await leave(stage, NODE)
        await stage.until(lambda: stage.cordoned(NODE))
        ask_for_a_gpu(stage, NODE)
        await meanwhile(stage)
        await stage.rest(1800)
        assert (torn(stage), found.pods, stage.cordons()) == ([], [], [])
        if meanwhile is _taken_back:
            assert (runs(stage, "late"), stage.driver(NODE)) == (True, OLD)
            assert condition_of(stage)[1] == "UpToDate"

    scenario()


@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
def test_a_node_whose_device_plugin_does_not_stop_says_so_and_is_trouble_once_its_time_is_up(leave: Change) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        if leave is _to_a_host:
            await _hosts_allowed(stage)
        plugin, = stage.pods(names.DEVICE_PLUGIN_APP, NODE)
        stage.sandbox.faults.add(Fault(FaultKind.STUCK_TERMINATING, node=NODE, pod=f"{names.DEVICE_PLUGIN_APP}-*"))
        await leave(stage, NODE)
        await stage.rest(120)
        state = stage.state(NODE)
        assert (stage.cordons(), stage.hold(NODE)) == ([NODE], "DevicePluginStopping")
        assert plugin["metadata"]["name"] in reason_of(await explanation_of(stage, NODE))
        await stage.rest(1800)
        assert (stage.cordons(), stage.hold(NODE), stage.state(NODE)) == ([NODE], "DoesNotStop", state)
        told = await explanation_of(stage, NODE)
        assert plugin["metadata"]["name"] in reason_of(told)
        assert plugin["metadata"]["name"] in told.remedies[0].do
        stage.sandbox.faults.clear()
        await stage.until(lambda: not stage.cordons())
        await stage.rest(60)
        assert (stage.hold(NODE), torn(stage)) == ("", [])

    scenario()


@pytest.mark.parametrize("leave", [_to_a_host, _without_operands])
def test_an_upgrade_fails_whose_node_leaves_and_whose_device_plugin_does_not_stop_and_others_see_it(leave: Change) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await by_nvidia_driver(stage)
        await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
        node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
        stage.sandbox.faults.add(Fault(FaultKind.STUCK_TERMINATING, node=node, pod=f"{names.DEVICE_PLUGIN_APP}-*"))
        plugin, = stage.pods(names.DEVICE_PLUGIN_APP, node)
        if leave is _to_a_host:
            await stage.patch_policy("sandboxWorkloads", {"enabled": True})
        await leave(stage, node)
        await stage.rest(1200)
        shown = (await status_of(stage))["counts"]
        assert (shown["total"], shown["inProgress"]) == (3, 1)
        await stage.rest(86400)
        assert (stage.cordons(), stage.hold(node)) == ([node], "DoesNotStop")
        told = await explanation_of(stage, node)
        assert plugin["metadata"]["name"] in reason_of(told)
        assert plugin["metadata"]["name"] in told.remedies[0].do
        shown = (await status_of(stage))["counts"]
        failed = int(leave is _without_operands)  # in a pause no upgrade fails: it stands still
        assert (shown["total"], shown["inProgress"], shown["failed"]) == (3, 1 - failed, failed)
        if leave is _without_operands:
            assert set(map(stage.hold, stage.states())) == {"DoesNotStop", "NoNodeMayStart"}
            assert "after 1800 s), and is given back once that pod has gone" in condition_of(stage)[2]
        stage.sandbox.faults.clear()
        await stage.until(lambda: not stage.state(node) and not stage.cordoned(node))
        if leave is _without_operands:
            others = [name for name in stage.states() if name != node]
            await stage.until(lambda: all(stage.state(name) == State.DONE for name in others), within=3600)
            assert {stage.driver(name) for name in others} == {NEW}
        assert torn(stage) == []

    scenario()


@pytest.mark.parametrize("gap", [0.0, 0.6, 1.6, 3.0])
@pytest.mark.parametrize("begin", [by_policy, precompiled, by_nvidia_driver])
def test_a_pod_that_names_a_node_in_mid_upgrade_loses_no_driver_and_is_evicted_or_refused(begin: Begin, gap: float) -> None:
    """Its driver is about to go: what offers the GPUs has stopped before."""
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
        node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
        await stage.rest(gap)
        stage.run_pod("late", node, owned=True)
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate" and not stage.cordons(), within=1800)
        assert torn(stage) == []
        assert [pod["status"]["reason"] for pod in stage.workload_pods("late")] in ([], ["UnexpectedAdmissionError"])
        assert not any("pod-deletion" in message and "failed" in message.lower() for message in stage.events(node))
        assert len(stage.pods(names.DEVICE_PLUGIN_APP, node)) == 1
        assert "stopping" not in stage.node(node)["metadata"]["annotations"][names.UPGRADE_RECORD]

    scenario()


@on_stage(gpu_nodes=2)
async def test_a_device_plugin_that_does_not_stop_holds_an_upgrade_for_a_while_and_is_named(stage: Stage) -> None:
    await by_policy(stage)
    for plugin in stage.pods(names.DEVICE_PLUGIN_APP):
        stage.sandbox.faults.add(Fault(FaultKind.STUCK_TERMINATING, pod=plugin["metadata"]["name"]))
    await stage.until(lambda: "DevicePluginStopping" in map(stage.hold, stage.states()), within=900)
    node = next(name for name in stage.states() if stage.hold(name) == "DevicePluginStopping")
    plugin, = stage.pods(names.DEVICE_PLUGIN_APP, node)
    told = reason_of(await explanation_of(stage, node))
    told_of = f"{names.DEFAULT_NAMESPACE}/{plugin['metadata']['name']}"
    assert told == f"waits until pod {told_of}, which offers its GPUs, has stopped: its driver goes after that"
    await stage.rest(30)
    assert (stage.hold(node), stage.driver(node)) == ("DevicePluginStopping", OLD)
    await stage.rest(30)
    assert not any(pod["metadata"].get("deletionTimestamp") is None and pod["spec"].get("nodeName") == node and
                   "595.91.07" in pod["spec"]["containers"][0]["image"] for pod in stage.pods(names.DRIVER_APP))


@pytest.mark.parametrize("meanwhile", [lambda stage: stage.patch_policy("driver/version", OLD),
                                       lambda stage: stage.restart_operator()], ids=["taken back", "restarted"])
def test_what_offers_the_gpus_comes_back_whatever_becomes_of_the_upgrade(meanwhile: Begin) -> None:
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: "paused" in stage.labels(NODE)[names.DEPLOY_PLUGIN])
        assert stage.driver(NODE) == OLD
        await meanwhile(stage)
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate" and not stage.cordons(), within=1800)
        await stage.until(lambda: runs_plugin(stage))
        assert torn(stage) == []

    scenario()


def runs_plugin(stage: Stage) -> bool:
    return stage.labels(NODE)[names.DEPLOY_PLUGIN] == "true" and len(stage.pods(names.DEVICE_PLUGIN_APP, NODE)) == 1
