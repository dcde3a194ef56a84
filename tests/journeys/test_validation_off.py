"""A node from which people keep what validates its driver: it is held alone, and says nothing of the driver."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.looking import condition_of, explanation_of, reason_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver
from tests.journeys.test_withheld import set_driver

MODES = ("clusterpolicy", "nvidiadriver", "precompiled")


async def installed(stage: Stage, mode: str) -> None:
    if mode == "nvidiadriver":
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", {"maxUnavailable": 1}, default=True))
    if mode == "precompiled":
        await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()


async def ask_for_another(stage: Stage, mode: str) -> str:
    """Ask for another driver, and return its version."""
    version = "590" if mode == "precompiled" else NEW
    if mode == "nvidiadriver":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": {"version": version}})
    else:
        await set_driver(stage, {"version": version})
    return version


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("busy", [True, False])
def test_one_that_is_to_have_no_validator_is_not_begun_with_and_stops_no_other(mode: str, busy: bool) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
    async def play(stage: Stage) -> None:
        await installed(stage, mode)
        before = stage.driver("gpu-1")
        if busy:
            await stage.deploy("train-2", node="gpu-2")
            await stage.deploy("train-3", node="gpu-3")
        await stage.label("gpu-1", names.DEPLOY_VALIDATOR, "false")
        await stage.rest(120)
        new = await ask_for_another(stage, mode)
        await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == new, within=2 * 3600)
        await stage.rest(600)
        assert (stage.driver("gpu-1"), stage.hold("gpu-1"), stage.cordons()) == (before, "ValidationOff", [])
        assert condition_of(stage)[:2] == ("False", "Blocked")
        found = await explanation_of(stage, "gpu-1")
        assert reason_of(found).startswith("no validator gets ready here")
        await stage.label("gpu-1", names.DEPLOY_VALIDATOR, None)
        await stage.until(lambda: stage.driver("gpu-1") == new and stage.all_are(State.DONE), within=3600)

    play()


@pytest.mark.parametrize("mode", MODES)
def test_one_whose_validator_does_not_get_ready_anew_comes_last_and_stops_no_other(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 1})
    async def play(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.deploy("train-2", node="gpu-2")
        await stage.label("gpu-1", names.DEPLOY_TOOLKIT, "false")
        await stage.rest(120)
        new = await ask_for_another(stage, mode)
        await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == new, within=2 * 3600)
        await stage.until(lambda: stage.hold("gpu-1") in ("RetryLater", "Failed"), within=3600)
        assert condition_of(stage)[1] not in ("NewDriverFails", "FailureBudgetExceeded")

    play()


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 0})
async def test_the_failures_of_such_nodes_spend_no_budget(stage: Stage) -> None:
    stage.sandbox.apply({"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "one"},
                         "spec": {"failureBudget": {"nodes": 0}, "retries": 0}})
    await stage.installed()
    await stage.label("gpu-3", names.UPGRADE_SKIP, "true")
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.DEPLOY_TOOLKIT, "false")
    await stage.rest(120)
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == stage.hold("gpu-2") == "Failed", within=3600)
    assert stage.driver("gpu-3") == OLD
    await stage.label("gpu-3", names.UPGRADE_SKIP, None)
    await stage.until(lambda: stage.driver("gpu-3") == NEW and stage.state("gpu-3") == State.DONE, within=3600)


@pytest.mark.parametrize("mode", MODES)
def test_one_that_stays_out_of_service_is_named_to_the_others_with_what_brings_it_back(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
    async def play(stage: Stage) -> None:
        await installed(stage, mode)
        await stage.label("gpu-1", names.DEPLOY_TOOLKIT, "false")
        await stage.rest(120)
        await ask_for_another(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") in ("RetryLater", "ValidationOff"), within=2 * 3600)
        newest = {"driver": {"version": "570"}} if mode == "precompiled" else {"driver": {"version": "595.91.09"}}
        if mode == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": newest["driver"]})
        else:
            await set_driver(stage, newest["driver"])
        await stage.rest(10)
        await stage.until(lambda: stage.hold("gpu-2") == stage.hold("gpu-3") == "NoNodeMayStart", within=3600)
        assert "is tried again by itself" not in condition_of(stage)[2]
        first = (await explanation_of(stage, "gpu-2")).remedies[0]
        assert first.commands == (f"kubectl label node gpu-1 {names.DEPLOY_TOOLKIT}-",)
        await stage.label("gpu-1", names.DEPLOY_TOOLKIT, None)
        await stage.until(lambda: stage.all_are(State.DONE) and stage.drivers() == [newest["driver"]["version"]], within=3600)

    play()


@on_stage(gpu_nodes=2)
async def test_nodes_that_wait_for_one_whose_driver_pod_does_not_end_are_told_that_it_needs_somebody(stage: Stage) -> None:
    await stage.installed()
    name = stage.driver_pod("gpu-1")["metadata"]["name"]
    stage.sandbox.store.modify("pods", names.DEFAULT_NAMESPACE, name,
                               lambda pod: pod["metadata"].update(finalizers=["example.com/audit"]))
    await stage.upgrade_to()
    await stage.rest(6 * 3600)
    assert (stage.hold("gpu-1"), stage.hold("gpu-2")) == ("DriverStopping", "NoNodeMayStart")
    assert condition_of(stage)[:2] == ("False", "NoNodeMayStart")
    (told,) = (await explanation_of(stage, "gpu-1")).remedies
    assert "finalizer example.com/audit keeps it" in told.do


@pytest.mark.parametrize("label", [names.DEPLOY_VALIDATOR, names.DEPLOY_TOOLKIT])
def test_a_label_that_is_mistyped_is_no_trouble_of_the_new_driver_either(label: str) -> None:
    """DaemonSets select by `true` alone. The node was begun with, failed, and stopped all others as if the driver were bad."""
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.label("gpu-1", label, "flase")
        await stage.rest(120)
        await stage.upgrade_to(NEW)
        if label == names.DEPLOY_VALIDATOR:
            await stage.until(lambda: stage.hold("gpu-1") == "ValidationOff")
        await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == NEW, within=3600)
        await stage.until(lambda: stage.hold("gpu-1") == "ValidationOff", within=3600)
        await stage.rest(60)
        assert "NewDriverFails" not in str(stage.policy_status())
        assert [f"kubectl label node gpu-1 {label}-"] == [
            command for remedy in (await explanation_of(stage, "gpu-1")).remedies for command in remedy.commands]

    play()
