"""Discovery's label for the kernel of a node, by which precompiled drivers are chosen: who mistypes it is told."""

from __future__ import annotations

import pytest

from gpuward import names
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import explanation_of, status_of
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods
from tests.journeys.test_validation_off import installed

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


@on_stage(gpu_nodes=1)
async def test_nothing_is_said_of_it_where_drivers_are_compiled(stage: Stage) -> None:
    await installed(stage, "clusterpolicy")
    await stage.label("gpu-1", names.NFD_KERNEL, "5.15.0-999-generic")
    await stage.rest(2)
    assert (await status_of(stage))["warnings"] == []
