"""The version that `gpuward status` shows as loaded is the one that is loaded, or is shown as doubtful."""

from __future__ import annotations

import pytest

from gpuward.model.states import State
from gpuward.report.nodes import NodeReport, node_reports
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import looking
from tests.journeys.stage import NEW, OLD, Stage, on_stage

ALL = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


async def report_of(stage: Stage, node: str) -> NodeReport:
    async with looking(stage) as picture:
        return next(one for one in node_reports(picture.plan, picture.snapshot, picture.drivers) if one.node == node)


async def untrue(stage: Stage, node: str, seconds: int) -> list[tuple[str, str, str]]:
    """Return what is told of a node without doubt in this time, and is not so: what is told, what is true, and the state."""
    found = []
    for _ in range(seconds // 2):
        await stage.rest(2)
        told, truth = await report_of(stage, node), stage.driver(node)
        about_to_be_ready = not told.loaded and truth == told.wanted
        if not (told.doubtful or told.loaded == truth or about_to_be_ready):
            found.append((told.loaded, truth, told.state))
    return found


@pytest.mark.parametrize("hangs_for", [20, 300])
def test_a_driver_that_hung_and_was_taken_back_is_not_told_to_be_loaded(hangs_for: int) -> None:
    @on_stage(gpu_nodes=1, upgrade=ALL)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1", image="*"))
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.driver("gpu-1") == "")
        await stage.rest(hangs_for)
        await stage.upgrade_to(OLD)
        await stage.rest(300)
        told = await report_of(stage, "gpu-1")
        assert stage.driver("gpu-1") == ""
        assert told.driver == f"{OLD}?", "the manager of the driver that hung unloaded it, and its pod is gone"
        assert await untrue(stage, "gpu-1", 300) == []
        stage.sandbox.faults.clear()
        await stage.upgraded(OLD)
        assert (await report_of(stage, "gpu-1")).driver == OLD

    scenario()


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_what_is_told_to_be_loaded_is_so_throughout_an_upgrade_and_its_taking_back(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    found = await untrue(stage, "gpu-1", 240)
    await stage.upgrade_to(OLD)
    found += await untrue(stage, "gpu-1", 240)
    assert found == []
    await stage.until(lambda: stage.state("gpu-1") == State.DONE)
