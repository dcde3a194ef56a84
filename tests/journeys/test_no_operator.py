"""A cluster in which no operator runs: what nobody carries out is not told as if it went on."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest
from rich.console import Console

from gpuward import names
from gpuward.cli.explain import show
from gpuward.cli.explanation import explained
from gpuward.cli.leader import NONE, Leader
from gpuward.cli.look import Look
from gpuward.cli.nodes import skip_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.cli.rollouts import said_if_idle
from gpuward.cli.status import Choice, as_json, screen
from gpuward.cli.waiting import Waiting
from gpuward.errors import RolloutNotDone
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.model.states import IN_PROGRESS
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import condition_of, looking, screen_of
from tests.journeys.stage import Stage, on_stage

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}
FOUR = {"maxParallelUpgrades": 4, "maxUnavailable": "100%"}
NEXT = "Next: nothing yet, as no operator runs"


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_what_waits_for_an_operator_does_not_go_on_by_itself(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: any(state in IN_PROGRESS for state in stage.states().values()))
    await stage.kill_operator()
    await stage.patch_policy("driver/upgradePolicy", FOUR | {"autoUpgrade": True})
    await stage.rest(3600)
    leader = Leader(NONE, stage.clock.now(), running=False)
    async with looking(stage, idle=True) as picture:
        told = as_json(picture, leader)
        lines = "\n".join(map(str, screen(picture, leader, Choice(), stage.clock.now())[:10]))
        found = [explained(picture, node) for node in stage.states()]
    assert told["counts"]["inProgress"] == sum(state in IN_PROGRESS for state in stage.states().values()) == 1
    assert told["estimate"] is None
    assert not any(node["until"] for node in told["nodes"])
    assert "go on by themselves" not in lines
    assert "2 waiting: nothing goes on until an operator runs" in lines
    for each in found:
        assert each.remedies[0].do == "get the operator to run: nothing goes on until an operator runs"
        assert all("operator runs" in other.then for other in each.remedies[1:])


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_what_the_last_operator_said_before_an_edit_is_not_told(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: any(state in IN_PROGRESS for state in stage.states().values()))
    await stage.rest(15)
    await stage.kill_operator()
    assert condition_of(stage)[1] == "Progressing"
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    assert not [line for line in await screen_of(stage, idle=True) if "operator says" in line or " said:" in line]


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_what_an_operator_said_that_runs_no_more_is_told_with_its_end(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    generation = stage.sandbox.store.get("clusterpolicies.nvidia.com", None, "cluster-policy")["metadata"]["generation"]
    edited = {"conditions": [{"type": "Error", "status": "True", "reason": "ReconcileFailed", "message": "a quota is used up",
                              "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation}]}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", {"status": edited}, subresource="status")
    lines = await screen_of(stage, leader=Leader(NONE, 1000.0, running=False, renewed=700.0))
    assert "the last operator, which ran until 5m0s ago, said: a quota is used up" in lines
    lines = await screen_of(stage, leader=Leader("operator a", 1000.0, running=True, renewed=999.0))
    assert "the operator says: a quota is used up" in lines


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_who_pauses_or_skips_is_told_that_no_operator_runs(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    for done in (skip_nodes(stage.user, ["gpu-1"], undo=False, dry_run=False), pause_rollouts(stage.user, "", dry_run=False)):
        assert [line async for line in said_if_idle(stage.user, done, dry_run=False)][-1].startswith(NEXT)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_node_under_way_waits_for_an_operator_first(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY))
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "DriverStarting" or stage.hold("gpu-2") == "DriverStarting")
    await stage.kill_operator()
    await stage.rest(60)
    leader = Leader(NONE, stage.clock.now(), running=False)
    lines = await screen_of(stage, idle=True, leader=leader)
    (under_way,) = (node for node, state in stage.states().items() if state in IN_PROGRESS)
    (row,) = (line for line in lines if line.startswith(under_way))
    assert "waits for an operator" in row
    shown = io.StringIO()
    async with looking(stage, idle=True) as picture:
        show(explained(picture, under_way), leader, Console(file=shown, width=1000))
    assert "waits for an operator; once one runs: waits for" in shown.getvalue()


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_who_waits_for_the_end_is_told_that_no_operator_runs(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    await stage.upgrade_to()
    told = io.StringIO()
    look = Look(Client(stage.sandbox.transport()), names.DEFAULT_NAMESPACE)
    async with look.following() as observer:
        with redirect_stderr(told), pytest.raises(RolloutNotDone, match=r"not done after 0\.5 s: no operator runs"):
            await Waiting(0.5).over(look, observer)
    assert told.getvalue().count("still waiting, as no operator runs") == 1


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_fleet_that_is_done_is_done_without_an_operator(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    told = io.StringIO()
    look = Look(Client(stage.sandbox.transport()), names.DEFAULT_NAMESPACE)
    async with look.following() as observer:
        with redirect_stderr(told):
            await Waiting(0.5).over(look, observer)
    assert told.getvalue() == ""


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_node_that_nobody_uncordons_is_not_up_to_date(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: "validation-required" in stage.states().values())
    await stage.kill_operator()
    await stage.rest(600)  # its driver gets validated meanwhile
    cordoned = [name for name in stage.states() if stage.sandbox.store.get("nodes", None, name)["spec"].get("unschedulable")]
    assert len(cordoned) == 1
    lines = await screen_of(stage, idle=True, leader=Leader(NONE, stage.clock.now(), running=False))
    told = "\n".join(lines)
    assert "ClusterPolicy cluster-policy: 0 of 3 nodes up to date" in told
    assert "0 of 3 up to date" in told
    assert "1 under way: nothing goes on until an operator runs" in told
    async with looking(stage, idle=True) as picture:
        counts = as_json(picture, Leader(NONE, stage.clock.now(), running=False))["counts"]
    assert (counts["upToDate"], counts["inProgress"], counts["done"]) == (0, 1, 0)
