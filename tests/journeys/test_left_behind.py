"""Driver pods whose DaemonSet is gone, or is another one than made them: each node ends with the driver that people ask for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import explanation_of, reason_of, screen_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_moves import (
    OTHER_KERNEL,
    at_rest,
    be_precompiled,
    headline,
    images,
    uids,
    with_one_owner,
    with_workloads,
)
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver, set_driver

NUMBERLESS: dict[str, str | None] = {names.REVISION_HASH: None, names.TEMPLATE_GENERATION: None}
"""The edit that leaves a driver pod without a word of which template it is."""


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize(("edited", "spec"), [
    (names.NFD_OS_VERSION, {}),
    (names.NFD_KERNEL, {"version": "580", "usePrecompiled": True}),
])
def test_a_node_whose_nvidiadriver_is_made_again_is_upgraded_to_what_discovery_says_now(
    edited: str, spec: dict[str, Any], automatic: bool
) -> None:
    """Its driver pod is nobody's, and another NVIDIADriver of the name is for another operating system or kernel there."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", default=True, **spec))
        await stage.installed()
        watcher = await with_workloads(stage)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.rest(60)
        said = OTHER_KERNEL if edited == names.NFD_KERNEL else "24.04" if stage.labels("gpu-2")[edited] == "22.04" else "22.04"
        await (runs_kernel(stage, "gpu-2", said) if edited == names.NFD_KERNEL else stage.label("gpu-2", edited, said))
        await stage.rest(60)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation="Orphan")
        await stage.rest(60)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(60)
        await make(stage, nvidia_driver("default", {"autoUpgrade": automatic}, default=True, **spec))
        if not automatic:
            await stage.rest(300)
            assert (stage.hold("gpu-2"), watcher.torn) == ("MovePaused", [])
            await set_driver(stage, "default", {"upgradePolicy": {"autoUpgrade": True}})
        await stage.until(lambda: images(stage, "gpu-2") != [] and said in images(stage, "gpu-2")[0], within=3600)
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"), within=3600)
        await at_rest(stage, watcher)
        assert State.POD_DELETION_REQUIRED in stage.entered("gpu-2")
        assert (stage.most_in_progress, stage.most_unavailable) == (1, 1)

    scenario()


Change = Callable[[Stage], Coroutine[Any, Any, None]]


async def plain(stage: Stage) -> None:
    await set_policy(stage, usePrecompiled=False, useNvidiaDriverCRD=False, version=OLD)


async def plain_and_newer(stage: Stage) -> None:
    await set_policy(stage, usePrecompiled=False, useNvidiaDriverCRD=False, version=NEW)


async def precompiled(stage: Stage) -> None:
    await set_policy(stage, usePrecompiled=True, useNvidiaDriverCRD=False, version="580")


async def by_nvidia_driver(stage: Stage) -> None:
    await make(stage, nvidia_driver("default", {"autoUpgrade": False}, default=True, version="570.1.1"))
    await set_policy(stage, useNvidiaDriverCRD=True)


async def set_policy(stage: Stage, **driver: object) -> None:
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": driver}})


MODES = [("580", precompiled, plain), (OLD, plain, precompiled), (OLD, plain, by_nvidia_driver), (OLD, plain, plain_and_newer),
         ("570", by_nvidia_driver, plain), ("580", precompiled, by_nvidia_driver)]


@pytest.mark.parametrize(("missing", "first", "then"), MODES)
def test_a_driver_pod_whose_image_is_missing_makes_room_for_the_next_driver_at_once(
    missing: str, first: Change, then: Change
) -> None:
    """Nothing is loaded by it, so nothing goes with it: upgrades are off, and no node has to wait for a turn."""
    @on_stage(gpu_nodes=3, upgrade={"autoUpgrade": False})
    async def scenario(stage: Stage) -> None:
        stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*driver:{missing}*"))
        await first(stage)
        await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"DriverFailing"})
        await then(stage)
        await stage.until(lambda: "" not in stage.drivers() and missing not in str(stage.drivers()), within=300)
        await stage.until(lambda: stage.operator.plan.counts.up_to_date == 3, within=300)
        assert (stage.cordons(), stage.operator.plan.holds) == ([], {})

    scenario()


@on_stage(gpu_nodes=3, upgrade={
    "maxParallelUpgrades": 1, "maxUnavailable": "100%", "waitForCompletion": {"podSelector": "app=train"}})
async def test_a_node_that_has_no_driver_yet_waits_for_no_turn(stage: Stage) -> None:
    """The one slot is taken for hours by a node on which a job runs."""
    await stage.installed()
    await stage.deploy("train", node="gpu-1")
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*driver:{OLD}*"))
    for node in ("gpu-2", "gpu-3"):
        await stage.user.delete(resources.PODS, stage.driver_pod(node)["metadata"]["name"], names.DEFAULT_NAMESPACE)
        await stage.label(node, names.UPGRADE_SKIP, "true")
    await stage.until(lambda: stage.hold("gpu-2") == stage.hold("gpu-3") == "DriverFailing")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "JobsRunning")
    assert stage.hold("gpu-2") == stage.hold("gpu-3") == "Skipped"
    for node in ("gpu-2", "gpu-3"):
        await stage.label(node, names.UPGRADE_SKIP, None)
    await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == NEW, within=300)
    await stage.until(lambda: stage.state("gpu-2") == stage.state("gpu-3") == State.DONE)
    assert (stage.driver("gpu-1"), stage.hold("gpu-1")) == (OLD, "JobsRunning")


@pytest.mark.parametrize("automatic", [True, False])
def test_a_driver_pod_that_has_loaded_nothing_stays_under_gpu_pods_until_the_node_s_turn(automatic: bool) -> None:
    """What an earlier driver pod has loaded is still there, and they run on it."""
    @on_stage(gpu_nodes=2, upgrade={"autoUpgrade": False})
    async def scenario(stage: Stage) -> None:
        await stage.until(lambda: stage.policy_status().get("state") == "ready")
        await with_workloads(stage)
        stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*driver:{OLD}*"))
        pod = driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
        await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
        await stage.until(lambda: stage.hold("gpu-1") == "DriverFailing")
        users, before = stage.sandbox.machine("gpu-1").users, uids(stage)
        await plain_and_newer(stage)
        if automatic:
            await stage.patch_policy("driver/upgradePolicy", {"autoUpgrade": True, "maxUnavailable": 0, "maxParallelUpgrades": 1})
            stage.set_budget("train-gpu-1", 0)
        await stage.rest(600)
        assert (uids(stage), stage.sandbox.machine("gpu-1").users) == (before, users)

    scenario()


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("leave", [plain, precompiled])
@pytest.mark.parametrize("gap", [1.0, 20.0, 60.0])
def test_drivers_that_are_switched_off_before_they_were_replaced_go_like_any_other(
    gap: float, leave: Change, automatic: bool
) -> None:
    """An NVIDIADriver's, or plain ones, that a DaemonSet left behind for an upgrade that never comes. Where upgrades are not
    automatic they stay as long as pods use them.
    """
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        if leave is plain:
            watcher = await with_one_owner(stage)
        else:
            await stage.installed()
            watcher = await with_workloads(stage)
        stage.watch_limits()
        await leave(stage)
        await stage.rest(gap)
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", automatic)
        await stage.patch_policy("driver/enabled", False)
        await stage.rest(7200)
        assert (stage.cordons(), watcher.torn) == ([], [])
        assert not (automatic and driver_pods(stage))
        for node in stage.states():
            kept = bool(driver_pods(stage, node))
            assert (stage.state(node), stage.hold(node)) == ((State.UPGRADE_REQUIRED, "DriverKept") if kept else ("", ""))
            told = reason_of(await explanation_of(stage, node))
            assert kept or told.startswith(f"ClusterPolicy {POLICY} has driver.enabled: false")
            assert kept or ("nobody serves it" in told) is bool(stage.driver(node))
        await set_policy(stage, enabled=True, upgradePolicy={"autoUpgrade": True})
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"), within=7200)
        assert stage.cordons() == []

    scenario()


@pytest.mark.parametrize("edit", [{names.REVISION_HASH: "edited"}, {names.REVISION_HASH: None}, NUMBERLESS],
                         ids=["edited", "gone", "both gone"])
@pytest.mark.parametrize("owner", ["ClusterPolicy", "NVIDIADriver", "precompiled"])
def test_a_driver_pod_whose_revision_somebody_edited_is_upgraded_with_the_others(owner: str, edit: dict[str, str | None]) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        if owner == "NVIDIADriver":
            await with_one_owner(stage)
        else:
            await stage.installed()
        if owner == "precompiled":
            await be_precompiled(stage)
        before, pod = uids(stage), driver_pods(stage, "gpu-1")[0]["metadata"]["name"]
        await stage.user.patch_merge(resources.PODS, pod, {"metadata": {"labels": edit}}, names.DEFAULT_NAMESPACE)
        await stage.rest(120)
        assert (stage.hold("gpu-1"), uids(stage), stage.cordons()) == ("MetadataBehind", before, [])
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"), within=60)
        assert stage.policy_status()["state"] == "ready"
        assert not any("older template" in line for line in await screen_of(stage))
        if owner == "NVIDIADriver":
            await set_driver(stage, "default", {"version": NEW})
        else:
            await set_policy(stage, usePrecompiled=False, version=NEW)
        await stage.upgraded()
        assert not before & uids(stage)

    scenario()


@on_stage(gpu_nodes=3)
async def test_labels_taken_off_a_new_driver_pod_hold_no_rollout(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.VALIDATION_REQUIRED in stage.states().values(), within=900)
    node = next(name for name, state in stage.states().items() if state == State.VALIDATION_REQUIRED)
    pod = stage.driver_pod(node)["metadata"]["name"]
    await stage.user.patch_merge(resources.PODS, pod, {"metadata": {"labels": NUMBERLESS}}, names.DEFAULT_NAMESPACE)
    await stage.upgraded()
    await stage.until(lambda: stage.policy_status()["state"] == "ready", within=120)
