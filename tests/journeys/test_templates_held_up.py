"""A new template of an operand waits for a node whose pod is not ready: people see for which node, and why."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import explanation_of, screen_of, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver, set_driver

EXPORTER = "nvidia-dcgm-exporter"


async def by_the_cluster_policy(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)


async def by_an_nvidia_driver(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await set_driver(stage, "default", {"version": NEW})


async def edited(stage: Stage) -> None:
    """Have the operand get another template, and come as far as it can."""
    await stage.patch_policy("dcgmExporter/env", [{"name": "EDITED", "value": "yes"}])
    await stage.rest(120)


def older(stage: Stage) -> list[str]:
    """Return the nodes of its pods that have the older template."""
    return sorted(pod["spec"]["nodeName"] for pod in stage.pods(EXPORTER)
                  if not any(each["name"] == "EDITED" for each in pod["spec"]["containers"][0].get("env") or ()))


async def notes_of(stage: Stage, node: str) -> list[str]:
    return [note for note in (await explanation_of(stage, node)).notes if "template" in note]


async def operand_of(stage: Stage) -> dict[str, Any]:
    (found,) = (each for each in (await status_of(stage))["operands"] if each["name"] == "dcgm-exporter")
    return dict(found)


@pytest.mark.parametrize("upgrade", [by_the_cluster_policy, by_an_nvidia_driver])
def test_a_template_that_waits_for_a_node_under_way_names_it(upgrade: Any) -> None:
    @on_stage(gpu_nodes=4)
    async def scenario(stage: Stage) -> None:
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, image=f"*{NEW}*"))
        await upgrade(stage)
        await stage.until(lambda: "DriverStarting" in map(stage.hold, stage.states()))
        await stage.rest(60)
        await edited(stage)
        left = older(stage)
        assert left
        assert "gpu-1" not in left
        told = (f"{len(left)} of 4 pods {'has' if len(left) == 1 else 'have'} an older template, and "
                f"{'waits' if len(left) == 1 else 'wait'} for the one that is not ready (gpu-1: its driver is being upgraded)")
        assert f"  dcgm-exporter 3/4  {told}" in await screen_of(stage)
        assert f"state-dcgm-exporter: {EXPORTER}: {told}" in stage.policy_status()["conditions"][0]["message"]
        operand = await operand_of(stage)
        assert (operand["waitsFor"], operand["newTemplateWaits"], operand["explainedByUpgrade"]) == (told, True, True)
        for node in left:
            assert await notes_of(stage, node) == [
                "dcgm-exporter: the pod here has an older template: the new one waits for that on gpu-1 "
                "(its driver is being upgraded)"]
        assert await notes_of(stage, "gpu-1") == [
            f"dcgm-exporter: its new template waits for the pod here, and has not come to {', '.join(left)}"]
        stage.sandbox.faults.clear()
        await stage.until(lambda: not older(stage))
        await stage.rest(120)
        assert not any("template" in line for line in await screen_of(stage))

    scenario()
