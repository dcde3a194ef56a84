"""A node that is cordoned while no upgrade is under way there, by somebody else or by its upgrade: what people are told."""

from __future__ import annotations

import json

import pytest

from gpuward.cli.cordons import UNTOLD, cordoned_by
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request
from kubesandbox.sim.faults import Fault
from kubesandbox.writing import APPLY_PATCH
from tests.journeys.looking import condition_of, explanation_of, looking, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_operand_fails import explained, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_status_screen import SMALL, shown
from tests.journeys.test_waves import abort
from tests.journeys.test_windows import window


def cordon_as(stage: Stage, node: str, manager: str) -> None:
    """Cordon a node by a server-side apply, from which on the sandbox tracks who writes what."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"unschedulable": True}}
    answer = stage.sandbox.api.handle(Request("PATCH", f"/api/v1/nodes/{node}", {"fieldManager": manager, "force": "true"},
                                              json.dumps(body).encode(), APPLY_PATCH))
    assert isinstance(answer, Answer)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("mode", ["ClusterPolicy", "precompiled", "NVIDIADriver"])
def test_a_foreign_cordon_on_a_node_that_is_done_is_shown(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await installed(stage, mode)
        assert not any("cordoned" in line for line in await shown(stage))
        await stage.cordon("gpu-2")
        await stage.rest(30)
        for size in (None, SMALL):
            lines = await shown(stage, size)
            assert lines[0] == "ClusterPolicy cluster-policy: 2 of 2 nodes up to date"
            assert "  2 up to date, 1 of them cordoned by somebody else" in lines
            (first, second) = [line for line in lines if line.startswith("gpu-")]
            assert "cordoned by somebody else" in first
            assert first.startswith("gpu-2  upgrade-done")
            assert second.startswith("gpu-1")
            assert "cordoned" not in second
        told = await explained(stage, "gpu-2")
        assert told["CORDONED"].split(maxsplit=1)[1].startswith("by somebody else, not by the upgrade: it stays until")
        assert "REASON" not in told
        assert "$ kubectl uncordon gpu-2" in told["HELP"]
        nodes = {node["name"]: node["cordonedBySomebodyElse"] for node in (await status_of(stage))["nodes"]}
        assert nodes == {"gpu-1": False, "gpu-2": True}
        assert condition_of(stage)[:2] == ("True", "UpToDate")
        await stage.cordon("gpu-2", False)
        assert not any("cordoned" in line for line in await shown(stage))

    story()


@on_stage(gpu_nodes=2)
async def test_a_foreign_cordon_on_a_node_that_waits_is_shown(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(86400, 90000)])
    await stage.cordon("gpu-2")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WindowShut")
    lines = await shown(stage)
    assert "  2 waiting: they go on by themselves (2 WindowShut), 1 of them cordoned by somebody else" in lines
    assert ["cordoned by somebody else" in line for line in lines if line.startswith("gpu-")] == [True, False]
    assert {node["name"]: node["cordonedBySomebodyElse"] for node in (await status_of(stage))["nodes"]} == {
        "gpu-1": False, "gpu-2": True}


@on_stage(gpu_nodes=1)
async def test_whose_cordon_it_is_stands_in_managed_fields(stage: Stage) -> None:
    await stage.installed()
    await stage.cordon("gpu-1")
    found = await explanation_of(stage, "gpu-1")
    assert await cordoned_by(stage.user, found.node, found.cordon) == UNTOLD
    cordon_as(stage, "gpu-1", "cluster-autoscaler")
    await stage.rest(60)
    cordon_as(stage, "gpu-1", "maintenance-bot")
    told = await explained(stage, "gpu-1")
    assert "(field manager maintenance-bot wrote it at 20" in told["CORDONED"]


@on_stage(gpu_nodes=1)
async def test_the_cordon_of_the_upgrade_is_nobody_elses(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.cordoned("gpu-1"))
    assert not any("somebody else" in line for line in await shown(stage))
    async with looking(stage) as picture:
        assert not picture.plan.nodes["gpu-1"].cordoned
    assert "by the upgrade, which lifts it at its end" in (await explained(stage))["CORDONED"]


@on_stage(gpu_nodes=2)
async def test_a_node_that_its_upgrade_left_cordoned_is_said_to_be(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    assert not any("still cordoned" in line for line in await shown(stage))
    await abort(stage)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=3600)
    await is_said_to_be_left_cordoned(stage, "1 failed (1 ")
    await stage.until(lambda: stage.hold("gpu-1") == "Aborted", within=3600)
    await is_said_to_be_left_cordoned(stage, "2 stopped, ")


async def is_said_to_be_left_cordoned(stage: Stage, line: str) -> None:
    """Check that people read of gpu-1, and of no other node, that its upgrade left it cordoned."""
    assert stage.cordons() == ["gpu-1"]
    for size in (None, SMALL):
        (found,) = [each.strip() for each in await shown(stage, size) if "still cordoned by gpuward" in each]
        assert found.startswith(line)
    rows = [each for each in await shown(stage) if each.startswith("gpu-")]
    assert ["still cordoned by its upgrade" in each for each in rows] == [True, False]
    told = {node["name"]: node["stillCordonedByUpgrade"] for node in (await status_of(stage))["nodes"]}
    assert told == {"gpu-1": True, "gpu-2": False}
