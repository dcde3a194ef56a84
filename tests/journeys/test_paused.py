"""What people read of a fleet whose upgrades are off, and what goes on where they are on again."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.cli.look import shown
from gpuward.cli.nodes import retry_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.cli.resume import resume_paused
from gpuward.cli.view import node_rows
from gpuward.cli.waiting import is_done, stopped
from gpuward.errors import InputError
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.report.nodes import node_reports
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.cli.verbs import said
from tests.journeys.looking import condition_of, explanation_of, looking, obey, reason_of, status_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage, policy
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_explained import metric
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_waves import abort, promote, resume

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}
OFF, ON = {"autoUpgrade": False}, {"autoUpgrade": True}


def row(stage: Stage, node: str) -> tuple[str, str]:
    """Return the state and the reason that `gpuward status` shows of a node."""
    plan = shown(stage.operator.plan, stage.operator.cluster.observe())
    (found,) = [row for row in node_rows(node_reports(plan), stage.clock.now()) if row.node == node]
    return found.state, found.reason


def gauge(stage: Stage, name: str) -> str:
    lines = stage.operator.metrics.text().decode().splitlines()
    return next(line.split()[-1] for line in lines if line.startswith(f"gpu_operator_{name} "))


async def switch(stage: Stage, crd: bool, to: dict[str, bool]) -> None:
    """Turn upgrades off or on."""
    if crd:
        await set_driver(stage, "x", {"upgradePolicy": to})
    else:
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", to["autoUpgrade"])


@pytest.mark.parametrize("crd", [False, True], ids=["ClusterPolicy", "NVIDIADriver"])
def test_a_failed_node_is_read_as_failed_in_a_pause_and_is_tried_again_in_its_time(crd: bool) -> None:
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def story(stage: Stage) -> None:
        if crd:
            await label_pools(stage, x="gpu-1 gpu-2")
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("x", ONE))
        await stage.installed()
        await apply(stage, deadlines={"pod-restart-required": "60s"}, retryBackoff="1h")
        fault = Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*")
        stage.sandbox.faults.add(fault)
        stage.watch_limits()
        await (set_driver(stage, "x", {"version": NEW}) if crd else stage.upgrade_to(NEW))
        await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
        (failed,) = [node for node, state in stage.states().items() if state == State.FAILED]
        since = stage.clock.now()
        await stage.rest(30)
        await switch(stage, crd, OFF)
        await stage.until(lambda: stage.state(failed) == "")
        await stage.rest(30)
        state, reason = row(stage, failed)
        assert state == "upgrade-failed"
        assert reason.startswith("failed in pod-restart-required: still waits for driver pod")
        assert gauge(stage, "nodes_upgrades_failed") == "1.0"
        if not crd:
            assert rollout(stage)[1] == "Paused"
            assert rollout(stage)[2].startswith(
                "0 of 2 nodes up to date, 0 in progress, 0 pending, 1 failed, 1 on another driver; held: 1 Paused, 1 Failed (")
        await stage.restart_operator()
        await stage.rest(30)
        assert row(stage, failed) == (state, reason)
        before = [pod["metadata"]["uid"] for pod in driver_pods(stage, failed)]
        await switch(stage, crd, ON)
        await stage.rest(60)
        assert (stage.state(failed), stage.hold(failed)) == (State.FAILED, "RetryLater")
        assert [pod["metadata"]["uid"] for pod in driver_pods(stage, failed)] == before
        assert metric(stage, "RetryLater") == "1.0"
        stage.sandbox.faults.clear(fault)
        await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=7200)
        assert stage.clock.now() - since < 7200

    story()


async def one_failed(stage: Stage) -> tuple[str, Fault]:
    """Let the first node fail, as its new driver crashes; return its name, and the fault."""
    await stage.installed()
    await apply(stage, deadlines={"pod-restart-required": "60s"}, retryBackoff="1h")
    fault = Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
    (failed,) = [node for node, state in stage.states().items() if state == State.FAILED]
    return failed, fault


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_failed_node_that_gets_well_in_a_pause_serves_again(stage: Stage) -> None:
    failed, fault = await one_failed(stage)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.until(lambda: stage.state(failed) == "")
    await stage.rest(300)
    assert stage.cordoned(failed)
    stage.sandbox.faults.clear(fault)
    await stage.until(lambda: stage.driver(failed) == NEW and not stage.cordoned(failed), within=1800)
    assert row(stage, failed)[1] == ""
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.upgraded(NEW, within=900)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_who_takes_a_failed_nodes_label_away_has_it_tried_again_at_once(stage: Stage) -> None:
    failed, fault = await one_failed(stage)
    stage.sandbox.faults.clear(fault)
    await stage.label(failed, "nvidia.com/gpu-driver-upgrade-state", None)
    await stage.upgraded(NEW, within=900)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_paused_node_that_failed_gets_another_target_at_once(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, deadlines={"pod-restart-required": "60s"}, retryBackoff="1h")
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(30)
    await stage.patch_policy("driver/version", "595.91.09")
    await stage.rest(30)
    assert gauge(stage, "nodes_upgrades_failed") == "0.0", "it failed with another driver than the one asked for"
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.upgraded("595.91.09", within=1800)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_node_whose_kubelet_dies_in_validation_is_said_to_be_not_ready_in_a_pause_too(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod="nvidia-operator-validator*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    stage.sandbox.disconnect("gpu-1")
    await stage.until(lambda: stage.hold("gpu-1") == "NodeNotReady", within=300)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(60)
    assert stage.hold("gpu-1") == "NodeNotReady"
    stage.sandbox.faults.clear()
    stage.sandbox.reconnect("gpu-1")
    await stage.until(lambda: stage.state("gpu-1") == "" and not stage.cordoned("gpu-1"))


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_failed_node_that_loses_its_policy_is_tried_again_in_its_time(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, deadlines={"pod-restart-required": "60s"}, retryBackoff="1h")
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.FAILED in stage.states().values(), within=3600)
    (failed,) = [node for node, state in stage.states().items() if state == State.FAILED]
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Orphan")
    await stage.rest(30)
    assert row(stage, failed)[0] == "upgrade-failed"
    assert sentence(stage.operator.plan.holds[failed]).startswith("failed in pod-restart-required")
    again = policy(upgrade=ONE)
    again["spec"]["driver"]["version"] = NEW
    stage.sandbox.apply(again)
    await stage.rest(60)
    assert (stage.state(failed), stage.hold(failed)) == (State.FAILED, "RetryLater")


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_pause_in_which_nothing_is_behind_is_no_rollout_that_stands_still(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(120)
    status, reason, message = condition_of(stage)
    assert (status, reason) == ("True", "UpToDate")
    assert message == "2 of 2 nodes up to date, 0 in progress, 0 pending, 0 failed; automatic upgrades are off"
    async with looking(stage) as picture:
        assert is_done(picture)
        assert not stopped(picture)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: condition_of(stage)[:2] == ("False", "Paused"))
    async with looking(stage) as picture:
        assert not is_done(picture)
        assert stopped(picture).startswith("Paused: 0 of 2 nodes up to date")


@on_stage(gpu_nodes=5, upgrade=ONE)
async def test_nodes_that_wait_for_the_drivers_of_nvidiadrivers_are_paused_by_virtual_machines(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("x", ONE, default=True, version=NEW))
    await stage.until(lambda: list(stage.states().values()).count(State.DONE) == 2 and stage.state("gpu-5") != State.DONE)
    await stage.patch_policy("sandboxWorkloads/enabled", True)
    await stage.rest(300)
    assert [line for line in stage.log if "keeps changing it back" in line.get("error", "")] == []
    assert {stage.state(node) for node in ("gpu-4", "gpu-5")} == {""}
    assert condition_of(stage)[:2] == ("False", "Paused")
    assert "1 in progress, 0 pending, 0 failed, 2 on another driver; held: 3 Paused" in condition_of(stage)[2]
    told = {node["name"]: node for node in (await status_of(stage))["nodes"]}
    assert {told[node]["reason"] for node in ("gpu-4", "gpu-5")} == {"Paused"}
    assert {told[node]["group"] for node in ("gpu-4", "gpu-5")} == {"on another driver"}
    assert reason_of(await explanation_of(stage, "gpu-5")).startswith("upgrades are paused")
    await stage.patch_policy("sandboxWorkloads/enabled", False)
    await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), within=1800)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_pause_names_what_paused_and_since_when(stage: Stage) -> None:
    await stage.installed()
    async for _ in pause_rollouts(stage.user, "", dry_run=False):
        pass
    await stage.upgrade_to(NEW)
    await stage.until(lambda: condition_of(stage)[:2] == ("False", "Paused"))
    paused = "upgrades are paused: autoUpgrade is false in ClusterPolicy cluster-policy"
    told = reason_of(await explanation_of(stage, "gpu-1"))
    assert told.startswith(f"{paused}, by `gpuward pause` since 2026-01-01T00:00:")
    assert f"; {paused}, by" in condition_of(stage)[2]
    async for _ in resume_paused(stage.user, "", dry_run=False):
        pass
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(60)
    assert paused in [reason_of(await explanation_of(stage, node)) for node in stage.states()], "which somebody else set"


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_what_pauses_an_nvidiadriver_is_named_and_what_ends_it(stage: Stage) -> None:
    await label_pools(stage, x="gpu-1 gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("x", ONE))
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads/enabled", True)
    await set_driver(stage, "x", {"version": NEW})
    await stage.rest(60)
    told = await explanation_of(stage, "gpu-1")
    machines = "sandboxWorkloads.enabled is true in ClusterPolicy cluster-policy"
    assert reason_of(told) == f"upgrades are paused: {machines}"
    (remedy,) = told.remedies
    assert remedy.do == "set sandboxWorkloads.enabled: false, if no node is to be for virtual machines"
    await switch(stage, True, OFF)
    await stage.rest(30)
    told = await explanation_of(stage, "gpu-1")
    assert reason_of(told) == f"upgrades are paused: autoUpgrade is false in NVIDIADriver x; and {machines}"
    (remedy,) = told.remedies
    for command in remedy.commands:
        await obey(stage, command)
    await stage.upgraded(NEW, within=900)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_beside_nodes_for_virtual_machines_a_driver_is_replaced_by_hand_as_explain_says(stage: Stage) -> None:
    await stage.installed()
    await stage.user.patch_merge(resources.NODES, "gpu-3", {"metadata": {"labels": {names.WORKLOAD_CONFIG: "vm-passthrough"}}})
    await stage.patch_policy("sandboxWorkloads/enabled", True)
    await stage.rest(300)
    stage.run_pod("training", "gpu-2", owned=True)
    await stage.patch_policy("driver/version", NEW)
    await stage.rest(120)
    assert (await explanation_of(stage, "gpu-2")).remedies == (), "no driver is replaced under a pod"
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert stage.driver("gpu-1") == OLD
    for command in remedy.commands:
        await obey(stage, command)
    await stage.until(lambda: stage.driver("gpu-1") == NEW, within=900)
    assert stage.driver("gpu-2") == OLD


@on_stage(gpu_nodes=1)
async def test_a_label_set_by_hand_in_a_pause_evicts_nobody_from_a_driver_whose_pod_was_replaced(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("training", node="gpu-1")
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    pod = stage.driver_pod("gpu-1")["metadata"]
    await stage.user.delete(resources.PODS, pod["name"], namespace=pod["namespace"])
    await stage.rest(300)
    before = [pod["metadata"]["uid"] for pod in stage.workload_pods("training")]
    await stage.label("gpu-1", names.UPGRADE_STATE, "pod-deletion-required")
    await stage.rest(60)
    assert [pod["metadata"]["uid"] for pod in stage.workload_pods("training")] == before
    assert (stage.hold("gpu-1"), stage.cordons()) == ("Paused", [])


@on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 1})
async def test_the_end_of_a_pause_is_no_end_of_an_abort(stage: Stage) -> None:
    """Who ends a pause need not know that the driver was given up before."""
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: [stage.state(node) for node in stage.states()].count(State.DONE) == 1 and NEW in stage.drivers())
    await abort(stage)
    await said(pause_rollouts(stage.user, "", dry_run=False))
    await stage.rest(600)
    told = await resume(stage)
    assert any("upgrades are on again" in line for line in told)
    stays = "its rollout was aborted, and stays so: `gpuward resume` once more takes the abort back"
    assert f"ClusterPolicy {POLICY}: {stays}" in told
    await stage.rest(1800)
    assert OLD in stage.drivers(), "one that was under way may have finished"
    assert "Aborted" in {stage.hold(node) for node in stage.states()}
    assert any("the abort is taken back" in line for line in await resume(stage))
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=4)
async def test_what_lets_one_nvidiadriver_go_on_names_that_one(stage: Stage) -> None:
    """Without its name the command ends the pauses and aborts of all others, too."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, a="gpu-1 gpu-2", b="gpu-3 gpu-4")
    await make(stage, nvidia_driver("a"), nvidia_driver("b"))
    await stage.until(lambda: stage.drivers() == [OLD] and stage.policy_status().get("state") == "ready")
    await apply(stage, waves=[{"name": "canary", "nodes": 1, "soak": "1h"}], retries=0)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await set_driver(stage, "b", {"version": NEW})
    await stage.until(lambda: State.FAILED in (stage.state("gpu-3"), stage.state("gpu-4")), within=3600)
    (failed,) = (node for node in ("gpu-3", "gpu-4") if stage.state(node) == State.FAILED)
    await abort(stage, "b")
    assert "and `gpuward resume --driver b` lets it go on: nothing is written" in (await promote(stage, "b"))[0]
    await said(pause_rollouts(stage.user, "b", dry_run=False))
    with pytest.raises(InputError, match="`gpuward resume --driver b` first"):
        await said(retry_nodes(stage.user, [failed], dry_run=False))
    stays = "its rollout was aborted, and stays so: `gpuward resume --driver b` once more takes the abort back"
    assert f"NVIDIADriver b: {stays}" in await resume(stage, "b")
