"""Switches of where drivers come from that are taken back: pods that ran on without their DaemonSet get it back, or run on."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import headline_of
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_moves import (
    OTHER_KERNEL,
    at_rest,
    headline,
    refuse_patches_of,
    uids,
    with_one_owner,
    with_precompiled,
)
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver


@pytest.mark.parametrize("away", [5, 60])
def test_drivers_that_are_taken_back_while_upgrades_are_off_are_given_back_untouched(away: float) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher, before = await with_one_owner(stage), uids(stage)
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.rest(away)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(300)
        assert (watcher.torn, uids(stage)) == ([], before)
        assert all(pod["metadata"].get("ownerReferences") for pod in driver_pods(stage))

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_node_that_may_not_be_labelled_keeps_its_driver_when_drivers_are_given_back(stage: Stage) -> None:
    watcher, before = await with_one_owner(stage, {"maxUnavailable": 0}), uids(stage)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(60)
    refuse_patches_of(stage, "gpu-3")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(300)
    assert (watcher.torn, uids(stage)) == ([], before)


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize(("field", "instead"), [("usePrecompiled", False), ("useNvidiaDriverCRD", True)])
def test_a_precompiled_driver_whose_nodes_kernel_was_edited_meanwhile_runs_on(field: str, instead: bool, automatic: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        watcher = await with_precompiled(stage)
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", automatic)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
        if field == "usePrecompiled":
            await stage.patch_policy("driver/version", OLD)
        await stage.patch_policy(f"driver/{field}", instead)
        await stage.rest(10)
        await runs_kernel(stage, "gpu-2", OTHER_KERNEL)
        await stage.rest(20)
        await stage.patch_policy("driver/version", "580")
        await stage.patch_policy(f"driver/{field}", not instead)
        await stage.rest(300)
        assert watcher.torn == []
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "100%")
        await stage.until(lambda: headline(stage)[:2] == ("True", "UpToDate"), within=3600)
        await at_rest(stage, watcher)
        assert stage.labels("gpu-2").get(names.DRIVER_KERNEL) == OTHER_KERNEL

    scenario()


@pytest.mark.parametrize("upgrade", [{"maxUnavailable": 0}, {"maxUnavailable": 1}])
def test_drivers_that_are_taken_back_before_a_node_began_disturb_nobody(upgrade: dict[str, int]) -> None:
    """The label that put the nodes into the queue was no person's: it asks for nothing once the pods have their DaemonSet."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher, before = await with_one_owner(stage, upgrade), uids(stage)
        workloads = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.rest(120)
        assert set(stage.states().values()) == {State.UPGRADE_REQUIRED}
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.until(lambda: stage.all_are(State.DONE), within=120)
        await stage.rest(1800)
        assert (watcher.torn, uids(stage), stage.cordons()) == ([], before, [])
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == workloads
        assert headline(stage)[:2] == ("True", "UpToDate")

    scenario()


@pytest.mark.parametrize(("after", "away"), [(1, 1), (5, 5), (30, 20), (1, 60)])
def test_drivers_taken_back_for_a_moment_in_mid_removal_leave_no_node_under_way(after: float, away: float) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        watcher = await with_one_owner(stage)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
        await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=3600)
        await stage.rest(after)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.rest(away)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(1500)
        assert (watcher.torn, stage.cordons(), set(stage.states().values())) == ([], [], {""})
        assert {stage.hold(node) for node in stage.states()} == {"NotSelected"}
        assert (await headline_of(stage)).endswith("0 of 3 nodes up to date, 3 held")
        await make(stage, nvidia_driver("default", default=True))
        await at_rest(stage, watcher)
        assert stage.drivers() == [OLD]

    scenario()
