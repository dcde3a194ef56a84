"""Drivers that are not there, whatever the labels say: what people read of them is what is loaded on the machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuward import names
from gpuward.cli.resume import resume_rollout
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from kubesandbox.store import Event
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import explanation_of, headline_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_moves import with_one_owner
from tests.journeys.test_nvidiadriver import set_driver

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}
ALL = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}
VALIDATOR = "nvidia-operator-validator"
OTHER_KERNEL = "5.15.0-105-generic"


def rollout(stage: Stage) -> tuple[str, str, str]:
    """Return status, reason and message of the condition that people wait for."""
    found = [one for one in stage.policy_status()["conditions"] if one["type"] == "DriverUpgrade"]
    return found[0]["status"], found[0]["reason"], found[0]["message"]


async def replace_driver_pod(stage: Stage, node: str) -> None:
    """Delete a driver pod, as a person would."""
    await stage.user.delete(resources.PODS, stage.driver_pod(node)["metadata"]["name"], names.DEFAULT_NAMESPACE)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_driver_pod_that_somebody_deletes_in_the_queue_makes_no_node_done(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", 3)
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.UPGRADE_REQUIRED)
    await replace_driver_pod(stage, "gpu-1")
    await stage.rest(60)
    await stage.label("gpu-1", names.UPGRADE_SKIP, None)
    await stage.until(lambda: stage.finished() and rollout(stage)[:2] == ("True", "UpToDate"))


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_an_idle_node_of_the_queue_whose_driver_pod_somebody_replaces_is_done_without_a_disturbance(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.UPGRADE_REQUIRED)
    old = {pod["metadata"]["uid"] for pod in stage.pods(VALIDATOR, "gpu-1")}
    await replace_driver_pod(stage, "gpu-1")
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and rollout(stage)[1] == "UpToDate")
    assert stage.driver("gpu-1") == NEW
    assert State.CORDON_REQUIRED not in stage.entered("gpu-1")
    assert not old & {pod["metadata"]["uid"] for pod in stage.pods(VALIDATOR, "gpu-1")}, "the new driver was validated anew"


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_a_driver_that_somebody_replaces_on_a_done_node_is_validated_anew(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    old = {pod["metadata"]["uid"] for pod in stage.pods(VALIDATOR, "gpu-1")}
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod=f"{VALIDATOR}*"))
    await replace_driver_pod(stage, "gpu-1")
    await stage.rest(300)
    assert not old & {pod["metadata"]["uid"] for pod in stage.pods(VALIDATOR, "gpu-1")}
    assert (stage.state("gpu-1"), stage.hold("gpu-1")) == (State.DONE, "ValidatorStarting")
    assert rollout(stage)[:2] == ("False", "DriversNotReady")
    stage.sandbox.faults.clear()
    await stage.until(lambda: rollout(stage)[:2] == ("True", "UpToDate"))


@pytest.mark.parametrize("kind", [FaultKind.DRIVER_CRASH, FaultKind.IMAGE_PULL])
def test_drivers_that_never_get_ready_are_in_the_headline_and_have_a_reason(kind: FaultKind) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def scenario(stage: Stage) -> None:
        for node in ("gpu-1", "gpu-2"):
            stage.sandbox.faults.add(Fault(kind, node=node, image=f"*{OLD}*"))
        await stage.until(lambda: stage.driver("gpu-3") == OLD, within=900)
        await stage.rest(300)
        status, reason, message = rollout(stage)
        assert (status, reason) == ("False", "DriversNotReady")
        assert message.startswith("1 of 3 nodes up to date")
        assert "2 DriverFailing (gpu-1, gpu-2)" in message
        assert [stage.hold(f"gpu-{number}") for number in (1, 2, 3)] == ["DriverFailing", "DriverFailing", ""]
        assert any("DriverFailing" in text for text in stage.events("gpu-1", "Warning"))
        stage.sandbox.faults.clear()
        await stage.until(lambda: rollout(stage)[:2] == ("True", "UpToDate"), within=1800)
        assert stage.drivers() == [OLD]

    scenario()


@on_stage(gpu_nodes=4, upgrade=ONE)
async def test_a_missing_image_costs_one_node_and_not_the_failure_budget(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", 4)
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-4") == "NewDriverFails", within=900)
    await stage.rest(6 * 3600)
    lost = [node for node in stage.states() if stage.driver(node) != OLD]
    assert len(lost) == 1, stage.states()
    assert rollout(stage)[1] == "NewDriverFails"
    assert await headline_of(stage) == ("ClusterPolicy cluster-policy: 0 of 4 nodes up to date, 1 failed; the rollout has "
                                        f"stopped: the new driver does not come up on {lost[0]}")
    stage.sandbox.faults.clear()
    await stage.upgrade_to("595.91.09")
    await stage.upgraded("595.91.09")


@on_stage(gpu_nodes=4, upgrade=ONE)
async def test_a_person_may_let_a_rollout_go_on_whose_first_node_is_in_trouble(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "NewDriverFails", within=900)
    await stage.rest(60)
    assert [stage.driver(f"gpu-{number}") for number in (2, 3, 4)] == [OLD] * 3
    await resume_rollout(stage.user, stage.clock.now())
    await stage.until(lambda: [stage.driver(f"gpu-{number}") for number in (2, 3, 4)] == [NEW] * 3, within=7200)


@pytest.mark.parametrize("by_nvidia_driver", [False, True])
def test_a_new_driver_that_fails_may_be_taken_back_as_explain_says(by_nvidia_driver: bool) -> None:
    @on_stage(gpu_nodes=4, upgrade=ONE)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        if by_nvidia_driver:
            await with_one_owner(stage)
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))

        async def ask_for(version: str) -> None:
            if by_nvidia_driver:
                await set_driver(stage, "default", {"version": version})
            else:
                await stage.patch_policy("driver/version", version)

        await ask_for(NEW)
        await stage.until(lambda: "NewDriverFails" in map(stage.hold, stage.states()), within=900)
        held = next(node for node in stage.states() if stage.hold(node) == "NewDriverFails")
        first = (await explanation_of(stage, held)).remedies[0]
        source = "nvidiadriver default" if by_nvidia_driver else f"clusterpolicy {POLICY}"
        taken = f"take the new driver back: give {source} the driver version that it had before, with which this node runs"
        assert first.do == f"{taken} ({OLD})"
        assert (first.then, first.commands) == ("this node is up to date then", (f"kubectl edit {source}",))
        await ask_for(OLD)
        await stage.upgraded(OLD)
        assert stage.cordons() == []

    scenario()


@on_stage(gpu_nodes=4, upgrade=ONE)
async def test_a_rollout_that_a_person_let_go_on_stops_at_the_next_node_that_the_driver_does_not_run_on(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "NewDriverFails", within=900)
    await stage.rest(60)
    await resume_rollout(stage.user, stage.clock.now())
    await stage.rest(6 * 3600)
    assert [stage.driver(f"gpu-{number}") for number in (3, 4)] == [OLD] * 2
    assert stage.hold("gpu-4") == "NewDriverFails"
    assert set(stage.cordons()) == {"gpu-1", "gpu-2"}


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_failed_node_whose_driver_pod_is_replaced_by_hand_is_validated_and_serves_again(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "Failed", within=6 * 3600)
    stage.sandbox.faults.clear()
    await replace_driver_pod(stage, "gpu-1")
    await stage.upgraded()
    assert stage.cordons() == []
    assert stage.drivers() == [NEW]


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_a_failure_is_not_forgotten_by_a_node_that_leaves_the_fleet_and_comes_back(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod=f"{VALIDATOR}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "Failed", within=6 * 3600)
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "false")
    await stage.rest(60)
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "true")
    await stage.rest(1800)
    assert stage.state("gpu-1") != State.DONE
    assert stage.hold("gpu-1") == "OperandFailing"
    assert rollout(stage)[:2] == ("False", "DriversNotReady")
    stage.sandbox.faults.clear()
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and rollout(stage)[1] == "UpToDate")


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_an_upgrade_that_is_taken_back_validates_nothing_on_a_node_that_came_back_unvalidated(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod=f"{VALIDATOR}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "false")
    await stage.rest(60)
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "true")
    await stage.rest(120)
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to("595.91.09")
    await stage.until(lambda: stage.state("gpu-1") == State.UPGRADE_REQUIRED)
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    assert stage.state("gpu-1") != State.DONE, "no validator has seen its driver"
    assert rollout(stage)[0] == "False"
    stage.sandbox.faults.clear()
    await stage.label("gpu-1", names.UPGRADE_SKIP, None)
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and rollout(stage)[1] == "UpToDate")


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_node_that_has_no_driver_pod_is_in_the_totals(stage: Stage) -> None:
    await stage.installed()
    taint = [{"key": "kept", "value": "for-others", "effect": "NoExecute"}]
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": taint}})
    await stage.until(lambda: not stage.pods(names.DRIVER_APP, "gpu-1"))
    await stage.rest(120)
    status, reason, message = rollout(stage)
    assert (status, reason) == ("False", "DriversNotReady")
    assert message.startswith("1 of 2 nodes up to date")
    assert stage.hold("gpu-1") == "DriverPodMissing"
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert remedy.do.startswith("take taint kept=for-others:NoExecute from the node, once whoever set it has finished: ")
    assert remedy.commands == ("kubectl taint node gpu-1 kept:NoExecute-",)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_whoever_waits_for_the_condition_after_an_edit_meets_no_older_one(stage: Stage) -> None:
    await stage.installed()
    await stage.until(lambda: rollout(stage)[1] == "UpToDate")
    await stage.upgrade_to(NEW)
    while stage.drivers() != [NEW]:
        found = next(one for one in stage.policy_status()["conditions"] if one["type"] == "DriverUpgrade")
        edited = stage.get("clusterpolicies.nvidia.com", POLICY, "")["metadata"]["generation"]
        assert found["status"] == "False" or found["observedGeneration"] < edited
        await stage.rest(0.05)
    await stage.until(lambda: rollout(stage)[0] == "True")


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_driver_that_is_not_in_its_daemon_set_is_nothing_to_be_up_to_date_with(stage: Stage) -> None:
    await stage.installed()
    await stage.until(lambda: rollout(stage)[1] == "UpToDate")
    await stage.patch_policy("driver/certConfig", {"name": "not-there"})
    await stage.upgrade_to(NEW)
    await stage.rest(300)
    assert stage.drivers() == [OLD]
    status, reason, message = rollout(stage)
    assert (status, reason) == ("False", "DriverNotApplied")
    assert "not-there" in message


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_rollback_goes_on_though_somebody_deletes_the_revision_of_the_pods_that_have_to_go(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    newer = stage.driver_pod("gpu-1")["metadata"]["labels"][names.REVISION_HASH]
    await stage.upgrade_to(OLD)
    await stage.until(lambda: stage.get("daemonsets.apps", names.DRIVER_APP)["status"].get("updatedNumberScheduled", 0) == 0)
    await stage.user.delete(resources.CONTROLLER_REVISIONS, f"{names.DRIVER_APP}-{newer}", names.DEFAULT_NAMESPACE)
    await stage.upgraded(OLD)
    assert stage.most_in_progress == 1


@on_stage(gpu_nodes=2, upgrade={**ONE, "waitForCompletion": {"podSelector": "app=train"}})
async def test_a_node_on_its_way_that_boots_another_kernel_is_not_done_before_the_driver_for_it_is_loaded(stage: Stage) -> None:
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE)
                      and stage.drivers() == ["580"])
    await stage.deploy("train", node="gpu-1")
    await runs_kernel(stage, "gpu-1", OTHER_KERNEL)
    await stage.until(lambda: stage.state("gpu-1") == State.WAIT_FOR_JOBS_REQUIRED)
    untrue: list[str] = []

    def saw(event: Event) -> None:
        if event.obj["metadata"]["name"] == "gpu-1" and stage.state("gpu-1") == State.DONE and not stage.driver("gpu-1"):
            untrue.append(f"done without a driver at {stage.clock.now()}")

    stage.sandbox.store.subscribe(saw, "nodes")
    stage.sandbox.reboot("gpu-1", OTHER_KERNEL)
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == "580" and not stage.cordons())
    assert untrue == []


@on_stage(gpu_nodes=1, upgrade=ONE)
async def test_a_driver_manager_that_fails_again_and_again_and_the_operator_do_not_undo_each_other(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.UPGRADE_REQUIRED)
    operands, shown = f"{names.DEPLOY_PREFIX}sandbox-validator", [""]

    def saw(event: Event) -> None:
        found = (event.obj["metadata"].get("labels") or {}).get(operands, "none")
        if event.obj["metadata"]["name"] == "gpu-1" and shown[-1] != found:
            shown.append(found)

    stage.sandbox.store.subscribe(saw, "nodes")
    await replace_driver_pod(stage, "gpu-1")  # the pod that uses the GPU stays, so that the old driver cannot be unloaded
    await stage.rest(3600)
    assert stage.driver("gpu-1") == OLD
    assert len(shown) <= 3, shown
    await stage.label("gpu-1", names.UPGRADE_SKIP, None)
    await stage.until(lambda: stage.finished() and operands not in stage.labels("gpu-1"))


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_node_whose_new_driver_does_not_come_up_is_told_how_to_take_it_back(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "DriverFailing" in {stage.hold(node) for node in stage.states()}, within=900)
    (node,) = [node for node in stage.states() if stage.hold(node) == "DriverFailing"]
    told = await explanation_of(stage, node)
    (found,) = [each for each in told.remedies if each.do.startswith("take the new driver back")]
    assert found.do.endswith(f"the driver version that it had before ({OLD})")
    assert found.commands == ("kubectl edit clusterpolicy cluster-policy",)
    await stage.upgrade_to(OLD)
    await stage.upgraded(OLD)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_the_second_attempt_at_a_driver_names_the_one_before_it_and_not_itself(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.FAILED in stage.states().values(), within=7200)
    (node,) = [node for node, state in stage.states().items() if state == State.FAILED]
    await stage.until(lambda: stage.state(node) == State.POD_RESTART_REQUIRED, within=7200)
    record = json.loads(stage.node(node)["metadata"]["annotations"][names.UPGRADE_RECORD])
    assert (record["course"]["from"], record["course"]["to"]) == (OLD, NEW)
    await stage.until(lambda: stage.hold(node) == "DriverFailing", within=7200)
    found = [each.do for each in (await explanation_of(stage, node)).remedies if each.do.startswith("take the new driver back")]
    assert found
    assert all(each.endswith(f"the driver version that it had before ({OLD})") for each in found)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_driver_that_runs_elsewhere_is_not_to_be_taken_back(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing", within=900)
    if stage.driver("gpu-2") == OLD:
        await resume_rollout(stage.user, stage.clock.now())
    await stage.until(lambda: stage.driver("gpu-2") == NEW and stage.state("gpu-2") == State.DONE, within=7200)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing", within=7200)
    told = await explanation_of(stage, "gpu-1")
    assert not any("take the new driver back" in each.do for each in told.remedies)


@pytest.mark.parametrize("limits", [ONE, {"maxParallelUpgrades": 0, "maxUnavailable": 1}], ids=["parallel", "unavailable"])
def test_nodes_behind_one_whose_driver_does_not_come_up_are_told_to_look_there_first(limits: Mapping[str, Any]) -> None:
    @on_stage(gpu_nodes=4, upgrade=limits)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, node="gpu-2", image=f"*{NEW}*"))
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-2") == "DriverFailing", within=900)
        await stage.rest(60)
        assert stage.driver("gpu-1") == NEW
        for node in ("gpu-3", "gpu-4"):
            assert stage.hold(node) in ("ParallelLimit", "UnavailableLimit", "NoNodeMayStart")
            look, take_back, *more = (await explanation_of(stage, node)).remedies
            assert (look.do, look.commands) == (
                "look at node gpu-2, which is under way and needs somebody", ("gpuward explain gpu-2",))
            assert take_back.do.startswith("take the new driver back")
            risk = "the new driver does not come up on node gpu-2, and more nodes get it all the same"
            assert [(each.do.split(" to ")[0], each.risk.startswith(risk)) for each in more] == [
                ("raise maxParallelUpgrades" if limits is ONE else "raise maxUnavailable", True)]

    scenario()
