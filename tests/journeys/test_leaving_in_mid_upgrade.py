"""Nodes that leave the fleet while their driver is being replaced: they offer GPUs until their device plugin has stopped, and no
driver serves these any more.
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
from kubesandbox.builders import deployment
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready, is_terminating
from kubesandbox.store import Event
from tests.journeys.looking import condition_of, explanation_of, reason_of
from tests.journeys.stage import NEW, Stage, gpu_template, on_stage
from tests.journeys.test_hosts_left import OURS
from tests.journeys.test_moves import with_one_owner, with_precompiled, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver, set_driver
from tests.journeys.test_removed import NVIDIADRIVER, installed, remove

Change = Callable[[Stage], Awaitable[Any]]


class Unserved:
    """Note each pod of users that is put on a machine whose driver nobody serves."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.pods: list[str] = []
        stage.sandbox.store.subscribe(self._saw, "pods")

    def _saw(self, event: Event) -> None:
        node, meta = event.obj["spec"].get("nodeName"), event.obj["metadata"]
        bound = node and not (event.old or {}).get("spec", {}).get("nodeName")
        if bound and meta["namespace"] == WORKLOAD_NAMESPACE and not self._stage.sandbox.machine(node).server:
            self.pods.append(f"{meta['name']} on {node}")


async def by_policy(stage: Stage) -> None:
    await stage.installed()
    await with_workloads(stage)
    await stage.upgrade_to(NEW)


async def precompiled(stage: Stage) -> None:
    await with_precompiled(stage)
    await stage.upgrade_to("590")


async def by_nvidia_driver(stage: Stage) -> None:
    await with_one_owner(stage)
    await set_driver(stage, "default", {"version": NEW})


async def to_virtual_machines(stage: Stage, node: str) -> None:
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": "vm-passthrough"})


async def without_operands(stage: Stage, node: str) -> None:
    await stage.label(node, names.DEPLOY_OPERANDS, "false")


@pytest.mark.parametrize("leave", [to_virtual_machines, without_operands])
@pytest.mark.parametrize("begin", [by_policy, precompiled, by_nvidia_driver])
@pytest.mark.parametrize("slow", [False, True], ids=["at once", "slow"])
def test_no_pod_is_put_on_a_node_that_has_lost_its_driver(
        begin: Change, leave: Callable[[Stage, str], Awaitable[None]], slow: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
        node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
        found, fault = Unserved(stage), Fault(FaultKind.STUCK_TERMINATING, node=node, pod=f"{names.DEVICE_PLUGIN_APP}-*")
        plugin, = stage.pods(names.DEVICE_PLUGIN_APP, node)
        if slow:
            stage.sandbox.faults.add(fault)
        await leave(stage, node)
        if slow:
            await stage.rest(300)
            assert stage.cordons() == [node], "it offers GPUs that no driver serves"
            assert stage.hold(node) == "DevicePluginStopping"
            assert plugin["metadata"]["name"] in reason_of(await explanation_of(stage, node))
            stage.sandbox.faults.clear()
        await stage.until(lambda: not stage.cordons() and not stage.state(node), within=600)
        assert found.pods == []

    scenario()


async def _to_one_for_hosts(stage: Stage) -> str:
    if stage.sandbox.store.list("nvidiadrivers.nvidia.com"):
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await make(stage, nvidia_driver("default", default=True, **OURS))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    return "WrongDriverType"


async def _to_nobody(stage: Stage) -> str:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    if stage.sandbox.store.list("nvidiadrivers.nvidia.com"):
        await set_driver(stage, "default", {"default": None, "nodeSelector": {"pool": "nothing"}})
    return "NotSelected"


@pytest.mark.parametrize("leave", [_to_one_for_hosts, _to_nobody])
@pytest.mark.parametrize("begin", [by_policy, precompiled, by_nvidia_driver])
def test_a_node_that_has_lost_its_driver_and_gets_no_other_stays_cordoned_and_says_why(
        begin: Change, leave: Callable[[Stage], Awaitable[str]]) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
        node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
        await stage.until(lambda: any(map(is_terminating, driver_pods(stage, node))))
        found = Unserved(stage)
        reason = await leave(stage)
        await stage.rest(3600)
        assert (found.pods, stage.cordons()) == ([], [node]), "it offers GPUs that no driver serves"
        assert stage.hold(node) == reason
        told = await explanation_of(stage, node)
        assert told.status is not None
        assert reason_of(told)
        assert not driver_pods(stage, node)
        await stage.restart_operator()
        await stage.rest(600)
        assert (stage.cordons(), stage.hold(node)) == ([node], reason)
        await make(stage, nvidia_driver("b", version=NEW))
        for name in stage.states():
            await stage.label(name, "pool", "b")
        await stage.until(lambda: stage.drivers() == [NEW] and condition_of(stage)[1] == "UpToDate", within=7200)
        assert (found.pods, stage.cordons()) == ([], [])

    scenario()


@on_stage(gpu_nodes=2)
async def test_the_log_tells_of_no_deleted_nvidiadriver_where_there_never_was_one(stage: Stage) -> None:
    await by_policy(stage)
    stage.sandbox.faults.add(Fault(FaultKind.STUCK_TERMINATING, pod="train-*"))
    await stage.until(lambda: State.POD_DELETION_REQUIRED in stage.states().values())
    said = len(stage.log)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.until(lambda: not stage.cordons())
    told = [line["msg"] for line in stage.log[said:] if "into service" in line["msg"]]
    assert told == ["Node that no NVIDIADriver has goes back into service"]


@pytest.mark.parametrize("edited", ["record", "label"])
def test_a_node_that_loses_its_driver_for_good_is_given_back_though_somebody_meddled_with_it(edited: str) -> None:
    """Whose driver it had, and that no other comes, is known after that, too."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, NVIDIADRIVER)
        await stage.deploy("training", node="gpu-1", max_unavailable=0)
        await remove(stage, NVIDIADRIVER)
        await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks" and not driver_pods(stage, "gpu-2"))
        if edited == "label":
            await stage.label("gpu-1", names.UPGRADE_STATE, State.VALIDATION_REQUIRED)
            await stage.rest(30)
        stage.set_budget("training", 1)
        if edited == "record":
            await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
            await stage.rest(0.3)
            await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})
        await stage.until(lambda: not driver_pods(stage))
        await stage.until(lambda: not stage.cordons() and set(stage.states().values()) == {""})

    story()


@pytest.mark.parametrize("begin", [by_policy, precompiled, by_nvidia_driver])
def test_nobody_is_evicted_for_a_driver_that_came_while_upgrades_were_off(begin: Change) -> None:
    """A node whose pods have gone is taken for one of virtual machines by mistake, and given back a moment later."""
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await begin(stage)
        node = await _emptied_while_upgrades_are_off(stage)
        await stage.label(node, names.WORKLOAD_CONFIG, "vm-passthrough")
        await stage.until(lambda: not driver_pods(stage, node))
        await stage.label(node, names.WORKLOAD_CONFIG, "container")
        await stage.until(lambda: bool(stage.driver(node)) and stage.state(node) == "")
        assert stage.cordons() == []
        comes = gpu_template("comes")
        comes["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": [{"operator": "Exists"}]}
        stage.sandbox.apply(deployment("comes", WORKLOAD_NAMESPACE, 1, comes))
        await stage.until(lambda: any(map(is_ready, stage.workload_pods("comes"))))
        before = [pod["metadata"]["uid"] for pod in stage.workload_pods("comes")]
        await stage.patch_policy("sandboxWorkloads", {"enabled": False})
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate", within=3600)
        assert [pod["metadata"]["uid"] for pod in stage.workload_pods("comes")] == before, "evicted for the driver that it has"

    story()


async def _emptied_while_upgrades_are_off(stage: Stage) -> str:
    """Switch upgrades off as a node is being emptied, and have its pods go then."""
    slow = Fault(FaultKind.STUCK_TERMINATING, pod="train-*")
    stage.sandbox.faults.add(slow)
    await stage.until(lambda: State.POD_DELETION_REQUIRED in stage.states().values(), within=900)
    node = next(name for name, state in stage.states().items() if state == State.POD_DELETION_REQUIRED)
    await stage.until(lambda: any(map(is_terminating, stage.workload_pods("", node))))
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": "container"})
    stage.sandbox.faults.clear()
    await stage.until(lambda: not stage.workload_pods("", node))
    return node
