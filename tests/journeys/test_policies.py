"""What happens to a rollout when the ClusterPolicy is paused, broken, doubled or deleted."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.kube.http.stats import RequestKey
from gpuward.model.record import decode_record
from gpuward.model.states import State
from tests.journeys.looking import status_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, blind_to_budgets, on_stage, policy

ONE = {"maxUnavailable": "100%", "maxParallelUpgrades": 1}
TWO = {"maxUnavailable": "100%", "maxParallelUpgrades": 2}


@pytest.mark.weakness(2, 3)
@on_stage(gpu_nodes=3, upgrade=ONE, interfere=blind_to_budgets)
async def test_a_paused_rollout_disturbs_nobody_and_goes_on_where_it_was(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    done = [node for node, state in stage.states().items() if state == State.DONE]
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.until(lambda: stage.hold("gpu-1") == "Paused")
    await stage.until(lambda: not any(stage.state(node) for node in stage.states() if node != "gpu-1"))
    assert done, "idle nodes go first"
    refused = stage.client.stats.total("create", "pods/eviction")
    stage.set_budget("inference", 1)
    await stage.rest(600)
    assert stage.client.stats.total("create", "pods/eviction") == refused
    assert stage.state("gpu-1") == State.POD_DELETION_REQUIRED
    assert stage.cordons() == ["gpu-1"]
    assert stage.driver("gpu-1") == OLD
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.upgraded()
    assert stage.cordons() == []
    assert stage.most_in_progress == 1


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_node_whose_driver_is_replaced_already_is_finished_while_paused(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.until(lambda: stage.state("gpu-1") == "" and not stage.cordoned("gpu-1"))
    assert stage.driver("gpu-1") == NEW
    await stage.rest(300)
    assert stage.driver("gpu-2") == OLD
    assert stage.states() == {"gpu-1": "", "gpu-2": ""}


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_limit_that_cannot_be_read_starts_nothing_new_and_says_what_to_write(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    await stage.until(lambda: stage.condition().get("reason") == "ReconcileFailed")
    message = stage.condition()["message"]
    assert "spec.driver.upgradePolicy.maxUnavailable" in message
    assert "'abc'" in message
    assert "25%" in message
    assert stage.policy_status()["state"] == "notReady"
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == NEW)
    await stage.rest(300)
    assert [stage.driver(node) for node in ("gpu-2", "gpu-3")] == [OLD, OLD]
    assert stage.hold("gpu-2") == "InvalidPolicy"
    assert sum("'abc'" in line["message"] for line in stage.warnings("ClusterPolicy notReady")) == 1
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "50%")
    await stage.upgraded()
    await stage.installed()


@on_stage(gpu_nodes=2, upgrade=ONE, interfere=blind_to_budgets)
async def test_an_invalid_policy_outlives_a_restart_without_losing_the_valid_limits(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.patch_policy("driver/upgradePolicy/podDeletion/timeoutSeconds", 120)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    await stage.restart_operator()
    begun = stage.clock.now()
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    assert stage.clock.now() - begun < 121, "the timeout of the last valid policy, from when the step began"


@on_stage(gpu_nodes=2)
async def test_a_second_policy_is_ignored_until_the_first_is_gone(stage: Stage) -> None:
    await stage.installed()
    second = policy("second")
    second["spec"]["driver"]["version"] = NEW
    await stage.user.create(resources.CLUSTER_POLICIES, second)
    await stage.until(lambda: stage.policy_status("second").get("state") == "ignored")
    told = f"ClusterPolicy second is ignored: {POLICY}, which is older, is in force"
    assert told in (await status_of(stage))["warnings"]
    await stage.rest(120)
    assert stage.drivers() == [OLD]
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: stage.policy_status("second").get("state") == "ready" and stage.finished())
    owner = stage.get("daemonsets.apps", "nvidia-driver-daemonset")["metadata"]["ownerReferences"][0]
    assert owner["name"] == "second"


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_policy_deleted_in_mid_rollout_ends_it_without_a_crash(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "DriverStopping")
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.until(lambda: stage.state("gpu-2") == "" and stage.state("gpu-3") == "")
    await stage.rest(120)
    assert stage.pods(names.DRIVER_APP) == []
    assert stage.state("gpu-1") == "", "nothing is left behind"
    assert stage.cordons() == []
    kept = decode_record(stage.node("gpu-1")["metadata"]["annotations"][names.UPGRADE_RECORD])
    assert (kept.state, kept.forced, kept.cordon) == (State.UNKNOWN, True, None), "but that its driver was not validated"
    other = decode_record(stage.node("gpu-2")["metadata"]["annotations"][names.UPGRADE_RECORD])
    assert (other.state, other.forced, other.cordon, bool(other.loaded)) == (State.UNKNOWN, False, None, True), "which it had"
    await stage.user.create(resources.CLUSTER_POLICIES, policy(upgrade=ONE))
    await stage.upgraded(OLD)
    assert stage.cordons() == []


@on_stage(gpu_nodes=1)
async def test_without_a_policy_the_operator_writes_nothing(stage: Stage) -> None:
    await stage.user.delete(resources.CLUSTER_POLICIES, POLICY)
    await stage.rest(300)
    written = [key for key in stage.client.stats.requests if key.verb in stage.client.stats.WRITES]
    assert all(key.status in (404, 409, 200, 201) for key in written)
    before = stage.client.stats.writes()
    await stage.rest(300)
    assert stage.client.stats.writes() == before
    assert stage.client.stats.requests[RequestKey("create", "pods/eviction", 201)] == 0
