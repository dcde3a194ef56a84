"""Discovery's label for the kernel of a node, by which precompiled drivers are chosen: who mistypes it is told."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import explanation_of, headline_of, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver
from tests.journeys.test_validation_off import installed
from tests.journeys.test_withheld import set_driver

KERNEL = "5.15.0-101-generic"


@pytest.mark.parametrize(("value", "told"), [
    ("5.15.0-999", f"the label {names.NFD_KERNEL}=5.15.0-999 of {{}} is not the kernel that it runs, {KERNEL}: its"),
    (None, f"{{}} has no label {names.NFD_KERNEL}: its precompiled driver stays the one for kernel {KERNEL}")])
def test_a_kernel_label_that_is_wrong_or_missing_is_told_where_drivers_are_chosen_by_it(value: str | None, told: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, "precompiled")
        assert (await status_of(stage))["warnings"] == []
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.label("gpu-1", names.NFD_KERNEL, value)
        await stage.rest(2)
        assert [each for each in (await status_of(stage))["warnings"] if each.startswith(told.format("gpu-1"))]
        assert [note for note in (await explanation_of(stage, "gpu-1")).notes if note.startswith(told.format("this node"))]
        assert not [note for note in (await explanation_of(stage, "gpu-2")).notes if "kernel" in note]

    story()


@on_stage(gpu_nodes=2)
async def test_a_kernel_label_that_is_mistyped_disturbs_nobody(stage: Stage) -> None:
    await installed(stage, "precompiled")
    await stage.deploy("train", node="gpu-1")
    await stage.label("gpu-1", names.NFD_KERNEL, "5.15.0-102-generic")
    await stage.rest(600)
    assert set(stage.entered("gpu-1")) <= {"upgrade-done"}, "its driver stays, and nobody is evicted"
    (told,) = (await status_of(stage))["warnings"]
    assert f"its precompiled driver stays the one for kernel {KERNEL} until they agree" in told
    await runs_kernel(stage, "gpu-1", "5.15.0-102-generic")
    await stage.until(lambda: "5.15.0-102-generic" in str(driver_pods(stage, "gpu-1")), within=900)


@on_stage(gpu_nodes=2)
async def test_a_kernel_label_that_is_misspelled_disturbs_nobody(stage: Stage) -> None:
    """What passes for the kernel that runs, as labels may not have all characters, is no reason for another driver."""
    await installed(stage, "precompiled")
    await stage.deploy("train", node="gpu-1")
    await stage.label("gpu-1", names.NFD_KERNEL, "5.15.0.101-Generic")
    await stage.rest(600)
    assert set(stage.entered("gpu-1")) <= {"upgrade-done"}


@pytest.mark.parametrize("way", ["precompiled", "nvidiadriver", "another nvidiadriver"])
def test_no_compiled_driver_gives_way_to_a_kernel_that_is_mistyped(way: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, "nvidiadriver" if way == "another nvidiadriver" else "clusterpolicy")
        await stage.deploy("train", node="gpu-1")
        before = stage.driver("gpu-1")
        await stage.label("gpu-1", names.NFD_KERNEL, "5.15.0-102-generic")
        if way == "precompiled":
            await set_driver(stage, {"usePrecompiled": True, "version": "580"})
        else:
            await make(stage, nvidia_driver("other", {"maxUnavailable": 1}, version="580", usePrecompiled=True,
                                            nodeSelector={names.GPU_PRESENT: "true"}))
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.until(lambda: stage.driver("gpu-2") == "580", within=1800)
        await stage.rest(1800)
        assert (stage.driver("gpu-1"), stage.cordons()) == (before, [])
        assert {"pod-deletion-required", "drain-required"}.isdisjoint(stage.entered("gpu-1"))
        (told,) = (await status_of(stage))["warnings"]
        assert "its precompiled driver is chosen by the label only where no driver runs yet" in told
        one = (await status_of(stage))["nodes"][0]
        assert (one["name"], one["reason"], one["upToDate"]) == ("gpu-1", "KernelUnknown", False)
        assert f"{names.NFD_KERNEL}, by which precompiled drivers are chosen, says 5.15.0-102-generic, and" in one["message"]
        (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
        assert remedy.commands == (f"kubectl label node gpu-1 {names.NFD_KERNEL}={KERNEL} --overwrite",)
        await stage.label("gpu-1", names.NFD_KERNEL, None)
        await stage.rest(600)
        assert (stage.driver("gpu-1"), stage.hold("gpu-1")) == (before, "KernelUnknown")
        await stage.label("gpu-1", names.NFD_KERNEL, KERNEL)
        await stage.until(lambda: stage.driver("gpu-1") == "580" and stage.all_are(State.DONE), within=1800)

    story()


@on_stage(gpu_nodes=2)
async def test_nodes_of_which_no_kernel_is_known_are_not_up_to_date_with_the_compiled_driver(stage: Stage) -> None:
    await installed(stage, "clusterpolicy")
    before = stage.driver("gpu-1")
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.NFD_KERNEL, None)
    await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.rest(600)
    status = await status_of(stage)
    assert {one["reason"] for one in status["nodes"]} == {"KernelUnknown"}
    assert {one["message"].partition(":")[0] for one in status["nodes"]} == {
        "this node keeps the driver that it has, and is not upgraded"}
    assert (status["counts"]["upToDate"], stage.drivers()) == (0, [before])


@on_stage(gpu_nodes=2, upgrade={"maxParallelUpgrades": 1})
async def test_a_driver_that_failed_is_none_to_keep_and_is_tried_again(stage: Stage) -> None:
    await installed(stage, "nvidiadriver")
    stage.sandbox.has_image = lambda image: NEW not in image
    await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": {"version": NEW}})
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await stage.label("gpu-1", names.NFD_KERNEL, None)
    await make(stage, nvidia_driver("other", {"maxUnavailable": 1}, version="580", usePrecompiled=True,
                                    nodeSelector={names.GPU_PRESENT: "true"}))
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=3600)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.sandbox.has_image = lambda image: True
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == State.DONE, within=3600)
    await stage.until(lambda: stage.drivers() == ["580", NEW] and stage.all_are(State.DONE), within=1800)
    assert (stage.hold("gpu-1"), stage.cordons()) == ("KernelUnknown", [])


@on_stage(gpu_nodes=2)
async def test_a_deleted_nvidiadrivers_nodes_that_keep_its_driver_are_not_said_to_lose_it(stage: Stage) -> None:
    await installed(stage, "nvidiadriver")
    before = stage.driver("gpu-1")
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.NFD_KERNEL, None)
    await make(stage, nvidia_driver("other", version="580", usePrecompiled=True, nodeSelector={names.GPU_PRESENT: "true"}))
    await stage.until(lambda: stage.hold("gpu-1") == "KernelUnknown")
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.rest(600)
    told = await headline_of(stage)
    assert ("0 of 2 nodes up to date, 2 held" in told, "removed" in told, stage.drivers()) == (True, False, [before]), told
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.NFD_KERNEL, KERNEL)
    await stage.until(lambda: stage.drivers() == ["580"] and stage.all_are(State.DONE), within=1800)


@on_stage(gpu_nodes=1)
async def test_nothing_is_said_of_it_where_drivers_are_compiled(stage: Stage) -> None:
    await installed(stage, "clusterpolicy")
    await stage.label("gpu-1", names.NFD_KERNEL, "5.15.0-999-generic")
    await stage.rest(2)
    assert (await status_of(stage))["warnings"] == []
