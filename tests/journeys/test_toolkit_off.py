"""The container toolkit is switched off on nodes that have none of their own: no pod of NVIDIA's runtime class starts."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from tests.journeys.looking import explanation_of, obey, status_of
from tests.journeys.stage import NEW, Stage, on_stage

OFF = "toolkit.enabled is false"


async def helps(stage: Stage, node: str) -> str:
    found = await explanation_of(stage, node)
    return "\n".join(each.do for each in found.remedies)


@on_stage(gpu_nodes=2)
async def test_nodes_without_a_toolkit_are_told_of_and_how_they_get_one(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("toolkit/enabled", False)
    await stage.upgrade_to()
    await stage.until(lambda: stage.states()["gpu-1"] == "validation-required")
    assert OFF not in await helps(stage, "gpu-1"), "its pods may just be starting"
    await stage.rest(120)
    assert OFF in await helps(stage, "gpu-1")
    assert not (await status_of(stage))["warnings"]
    await stage.rest(900)
    (warning,) = (await status_of(stage))["warnings"]
    assert warning.startswith(f"{OFF}, and on gpu-1 pods of NVIDIA's runtime class do not start")
    first = (await explanation_of(stage, "gpu-1")).remedies[0]
    await obey(stage, first.commands[0])
    await stage.until(lambda: stage.finished(NEW), 7200)
    assert not (await status_of(stage))["warnings"]


@on_stage(gpu_nodes=2)
async def test_a_validator_that_hangs_for_another_reason_is_no_matter_of_the_toolkit(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.trouble("gpu-1", "validator-never-ready")
    await stage.upgrade_to()
    await stage.rest(1200)
    assert OFF not in await helps(stage, "gpu-1")
    assert not (await status_of(stage))["warnings"]


@on_stage(gpu_nodes=2)
async def test_a_device_plugin_that_comes_anew_is_told_of_outside_of_rollouts_too(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("toolkit/enabled", False)
    await stage.rest(120)
    plugin, = stage.pods(names.DEVICE_PLUGIN_APP, "gpu-1")
    await stage.user.delete(resources.PODS, plugin["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.rest(1200)
    (warning,) = (await status_of(stage))["warnings"]
    assert warning.startswith(f"{OFF}, and on gpu-1 pods")
    assert OFF in (await explanation_of(stage, "gpu-1")).remedies[0].do
