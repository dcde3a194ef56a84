"""What the ClusterPolicy itself tells: events of its upgrade, and a condition that names the pod to look at."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.stage import NEW, POLICY, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply


def told(stage: Stage) -> list[tuple[str, str]]:
    """Return type and reason of the policy's events, in order."""
    found = [event for event in stage.sandbox.store.list("events", "default") if event["involvedObject"]["name"] == POLICY]
    found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(event["type"], event["reason"]) for event in found]


@on_stage(gpu_nodes=2)
async def test_a_rollout_s_begin_pause_and_end_are_events_of_the_policy(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    assert told(stage) in ([], [("Normal", "GPUDriverUpgradeUpToDate")]), "as it is installed"
    await stage.upgrade_to()
    await stage.until(lambda: ("Normal", "GPUDriverUpgradeProgressing") in told(stage))
    upgrades = {"spec": {"driver": {"upgradePolicy": {"autoUpgrade": False}}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, upgrades)
    await stage.until(lambda: ("Normal", "GPUDriverUpgradePaused") in told(stage))
    upgrades["spec"]["driver"]["upgradePolicy"]["autoUpgrade"] = True
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, upgrades)
    await stage.upgraded()
    await stage.until(lambda: ("Normal", "GPUDriverUpgradeUpToDate") in told(stage))
    await stage.rest(600)
    assert len(told(stage)) == 3, "that it goes on again is counted on the first"


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
async def test_a_standstill_is_told_once_it_has_lasted_and_not_again_and_again(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.rest(60)
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-2") == State.DONE and stage.driver("gpu-2") == NEW)
    blocked, goes = ("Warning", "GPUDriverUpgradeBlocked"), ("Normal", "GPUDriverUpgradeProgressing")
    await stage.rest(45)
    assert told(stage)[-1] == goes
    await stage.rest(60)
    assert told(stage)[-1] == blocked
    (event,) = (each for each in stage.sandbox.store.list("events", "default") if each["reason"] == blocked[1])
    assert "held: 1 BudgetBlocks (gpu-1)" in event["message"]
    await stage.rest(2 * 3600)
    assert told(stage)[-1] == blocked
    (event,) = (each for each in stage.sandbox.store.list("events", "default") if each["reason"] == blocked[1])
    assert event["count"] == 1
    stage.set_budget("inference", 1)
    await stage.upgraded()
    await stage.until(lambda: told(stage)[-1] == ("Normal", "GPUDriverUpgradeUpToDate"))


@on_stage(gpu_nodes=2)
async def test_a_policy_that_becomes_invalid_warns(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("cdi", {"enabled": False, "nriPluginEnabled": True})
    await stage.until(lambda: ("Warning", "GPUDriverUpgradeInvalidPolicy") in told(stage))


@on_stage(gpu_nodes=2)
async def test_what_is_wrong_with_the_rolloutpolicy_is_in_the_event(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": "0 22 * * FRI", "duration": "8h", "timeZone": "Europe/Berln"}])
    await stage.upgrade_to()
    invalid = "GPUDriverUpgradeInvalidPolicy"
    await stage.until(lambda: ("Warning", invalid) in told(stage))
    (event,) = (each for each in stage.sandbox.store.list("events", "default") if each["reason"] == invalid)
    assert "RolloutPolicy default cannot be followed: spec.windows[0].timeZone: 'Europe/Berln'" in event["message"]


@on_stage(gpu_nodes=2)
async def test_the_condition_names_the_pod_that_is_stuck(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, node="gpu-2"))
    for pod in stage.pods(names.VALIDATOR_APP, "gpu-2"):
        await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: "gpu-2: " in stage.condition().get("message", ""), within=120)
    message = stage.condition()["message"]
    assert message.startswith("ClusterPolicy is not ready; states not ready: [state-operator-validation]; ")
    assert "state-operator-validation: nvidia-operator-validator: 1 of 2 pods are unavailable (gpu-2: init container" in message
    assert "ImagePull" in message
