"""Drivers that do not start and validations that do not end: failed, with a cause, and never taken for a success."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.record import decode_record
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import gpu_node
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of, explanation_of, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_coming_back import NEWER
from tests.journeys.test_nvidiadriver import nvidia_driver
from tests.journeys.test_rolloutpolicy import apply

VALIDATOR = "nvidia-operator-validator"
TWO = {"maxUnavailable": "100%", "maxParallelUpgrades": 2}


def cause(stage: Stage, node: str) -> str:
    record = decode_record(stage.node(node)["metadata"]["annotations"][names.UPGRADE_RECORD])
    return record.failure.cause if record.failure else ""


@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_a_driver_that_crashes_fails_its_node_with_the_cause_while_the_others_go_on(stage: Stage) -> None:
    await stage.installed()
    fault = Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    assert "CrashLoopBackOff" in cause(stage, "gpu-1")
    assert "restarts" in cause(stage, "gpu-1")
    assert stage.driver_pod("gpu-1")["metadata"]["name"] in cause(stage, "gpu-1")
    assert stage.cordoned("gpu-1"), "it has no driver"
    assert stage.states() == {"gpu-1": "upgrade-failed", "gpu-2": "upgrade-done", "gpu-3": "upgrade-done"}
    assert stage.warnings("Node is held", node="gpu-1")
    await stage.rest(4 * 3600)
    assert stage.entered("gpu-1").count(State.FAILED) == 4, "it is tried three times more, and then left to people"
    assert stage.hold("gpu-1") == "Failed"
    stage.sandbox.faults.clear(fault)
    await stage.label("gpu-1", names.UPGRADE_STATE, "upgrade-required")
    await stage.upgraded()
    assert stage.cordons() == []
    assert cause(stage, "gpu-1") == ""


async def be_skipped(stage: Stage) -> None:
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")


async def be_off(stage: Stage) -> None:
    stage.sandbox.disconnect("gpu-1")


async def lose_its_driver_pod(stage: Stage) -> None:
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}})


@pytest.mark.parametrize(("happens", "reason"), [
    (be_skipped, "Skipped"), (be_off, "NodeNotReady"), (lose_its_driver_pod, "DriverPodMissing")])
def test_a_failed_node_that_may_not_be_tried_again_has_failed_still(
    happens: Callable[[Stage], Awaitable[None]], reason: str
) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
    async def play(stage: Stage) -> None:
        await stage.installed()
        fault = Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*")
        stage.sandbox.faults.add(fault)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, 3600)
        await happens(stage)
        await stage.rest(7200)
        assert (stage.state("gpu-1"), stage.hold("gpu-1")) == (State.FAILED, reason)
        assert (await status_of(stage))["counts"]["failed"] == 1
        assert "1 failed" in condition_of(stage)[2]
        assert (stage.driver("gpu-2"), stage.driver("gpu-3")) == (OLD, OLD)
        told = await explanation_of(stage, "gpu-1")
        assert told.failure is not None
        assert "CrashLoopBackOff" in told.failure.cause
        stage.sandbox.faults.clear(fault)
        stage.sandbox.reconnect("gpu-1")
        await stage.user.patch_merge(resources.NODES, "gpu-1", {
            "spec": {"taints": None}, "metadata": {"labels": {names.UPGRADE_SKIP: None}}})
        await stage.upgraded(within=7200)
        assert stage.cordons() == []

    play()


@pytest.mark.weakness(1)
@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_a_validation_that_does_not_end_is_never_taken_for_a_success(stage: Stage) -> None:
    await stage.installed()
    fault = Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod="nvidia-operator-validator*")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=1200)
    assert "600 s" in cause(stage, "gpu-1")
    assert stage.driver("gpu-1") == NEW, "the driver itself is up, and still the node is not"
    await stage.rest(7200)
    assert stage.state("gpu-1") == State.FAILED
    assert stage.cordoned("gpu-1")
    assert stage.states() == {"gpu-1": "upgrade-failed", "gpu-2": "upgrade-done", "gpu-3": "upgrade-done"}
    stage.sandbox.faults.clear(fault)
    await stage.upgraded()
    assert stage.cordons() == []


@on_stage(gpu_nodes=2, upgrade=TWO)
async def test_a_failed_node_takes_part_again_when_the_version_changes(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-2", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-2") == State.FAILED and stage.state("gpu-1") == State.DONE, within=7200)
    await stage.upgrade_to(OLD)
    await stage.upgraded(OLD)
    assert stage.cordons() == []


@pytest.mark.weakness(28)
@on_stage(gpu_nodes=2, upgrade=TWO)
async def test_garbage_in_an_annotation_or_a_label_holds_that_node_and_no_other(stage: Stage) -> None:
    await stage.installed()
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {
        "annotations": {names.UPGRADE_RECORD: "{garbage", names.VALIDATION_SINCE: "yesterday"},
        "labels": {names.UPGRADE_STATE: "half-done"}}})
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-2") == State.DONE and stage.driver("gpu-2") == NEW)
    assert stage.hold("gpu-1") == "UnknownState"
    assert len(stage.warnings("Node is held", node="gpu-1")) == 1
    await stage.label("gpu-1", names.UPGRADE_STATE, "upgrade-required")
    await stage.upgraded()
    assert msgspec.json.decode(stage.node("gpu-1")["metadata"]["annotations"][names.UPGRADE_RECORD])["state"] == "upgrade-done"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("absent", [True, False])
def test_a_failure_of_which_only_a_label_tells_is_no_success_after_a_pause(absent: bool, known: bool) -> None:
    @on_stage(gpu_nodes=1, upgrade=TWO)
    async def story(stage: Stage) -> None:
        await stage.installed()
        before = stage.pods(VALIDATOR, "gpu-1")[0]["metadata"]["uid"]
        policy = stage.sandbox.store.get("clusterpolicies.nvidia.com", None, POLICY)
        if absent:
            await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Orphan")
        else:
            await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.rest(30)
        if not known:
            await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})
        await stage.label("gpu-1", names.UPGRADE_STATE, "upgrade-failed")
        await stage.rest(30)
        assert stage.state("gpu-1") == ""
        entered = len(stage.entered("gpu-1"))
        if absent:
            stage.sandbox.apply({**policy, "metadata": {"name": POLICY}, "status": {}})
        else:
            await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
        await stage.until(lambda: stage.state("gpu-1") == State.DONE)
        assert State.VALIDATION_REQUIRED in stage.entered("gpu-1")[entered:]
        assert stage.pods(VALIDATOR, "gpu-1")[0]["metadata"]["uid"] != before, "the driver is validated anew"

    story()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("deleted", [True, False])
def test_a_failure_of_which_only_a_label_tells_ends_once_its_driver_is_ready(deleted: bool, known: bool) -> None:
    """As where NVIDIA's operator has left the node failed, or a person has labelled it, and the driver pod gets ready after that:
    the validator pod is older, and nobody else would replace it.
    """
    @on_stage(gpu_nodes=2, upgrade=TWO)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED and not stage.driver("gpu-1"))
        await stage.rest(4)
        await stage.kill_operator()
        if not known:
            await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_RECORD: None}}})
        await stage.label("gpu-1", names.UPGRADE_STATE, "upgrade-failed")
        if deleted:
            await stage.rest(8)
        await stage.restart_operator()
        if deleted:
            pod = stage.driver_pod("gpu-1")["metadata"]
            await stage.user.delete(resources.PODS, pod["name"], pod["namespace"])
        await stage.until(lambda: stage.driver("gpu-1") == NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.DONE)

    story()


@pytest.mark.parametrize("mode", ["ClusterPolicy", "NVIDIADriver"])
def test_the_condition_names_the_node_that_fails_again_and_again(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 1})
    async def play(stage: Stage) -> None:
        if mode == "NVIDIADriver":
            for name in ("gpu-1", "gpu-2", "gpu-3"):
                await stage.label(name, "pool", "a")
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await stage.user.create(resources.NVIDIA_DRIVERS, nvidia_driver("a"))
        await stage.installed()
        stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod="nvidia-operator-validator*"))
        if mode == "NVIDIADriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"version": NEW}})
        else:
            await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
        await stage.until(lambda: "gpu-1 has failed once, last in validation-required (" in condition_of(stage)[2], within=60)
        await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED, within=7200)
        await stage.rest(60)
        assert condition_of(stage)[0] == "False"
        assert ", and is in attempt 2" in condition_of(stage)[2]
        await stage.until(lambda: "gpu-1 has failed 2 times" in condition_of(stage)[2], within=7200)

    play()


@pytest.mark.parametrize("trouble", [FaultKind.DRIVER_CRASH, FaultKind.IMAGE_PULL])
def test_a_node_on_which_no_driver_comes_up_is_not_the_first_to_try_a_new_one(trouble: FaultKind) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%"})
    async def story(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.faults.add(Fault(trouble, node="gpu-0"))
        stage.sandbox.add_node(gpu_node("gpu-0", os="ubuntu24.04"))
        for node in ("gpu-1", "gpu-2", "gpu-3"):
            stage.run_pod(f"training-{node}", node, owned=True)
        await stage.until(lambda: stage.hold("gpu-0") == "DriverFailing")
        await stage.upgrade_to()
        await stage.until(lambda: all(stage.driver(node) == NEW for node in ("gpu-1", "gpu-2", "gpu-3")), within=7200)
        assert stage.driver("gpu-0") == ""
        assert condition_of(stage)[1] in ("Progressing", "NodesFailed")

    story()


@pytest.mark.parametrize("joined", [False, True])
def test_a_node_that_a_broken_driver_keeps_out_of_service_tries_the_next_before_nodes_that_serve(joined: bool) -> None:
    """Else pods would be evicted from a node that serves, for a driver that nobody has seen come up."""
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 1})
    async def story(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, retries=0)
        for node in ("gpu-1", "gpu-2", "gpu-3"):
            stage.run_pod(f"training-{node}", node, owned=True)
        for version in (NEW, NEWER):
            stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{version}*"))
        if joined:
            await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.upgrade_to()
        if joined:
            await stage.rest(5)
            stage.sandbox.add_node(gpu_node("gpu-4"))
            await stage.until(lambda: stage.hold("gpu-4") == "DriverFailing")
        else:
            await stage.until(lambda: State.FAILED in stage.states().values(), within=7200)
        pods = len(stage.workload_pods())
        await stage.upgrade_to(NEWER)
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
        await stage.until(lambda: condition_of(stage)[1] == "NewDriverFails")
        await stage.rest(1200)
        assert (len(stage.workload_pods()), condition_of(stage)[1]) == (pods, "NewDriverFails")

    story()
