"""Somebody makes a node schedulable again and again in mid-upgrade: that is what people are told of, not the pods that come."""

from __future__ import annotations

import asyncio

import pytest

from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.driver import set_cordon
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import NEW, Stage, on_stage

ALL = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}


async def lift_for_ever(stage: Stage, node: str) -> None:
    """Uncordon a node whenever it is cordoned."""
    while True:
        if stage.cordoned(node):
            await stage.cordon(node, False)
        await asyncio.sleep(1)


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_who_uncordons_a_node_again_and_again_is_named_and_not_the_workload(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inf", node="gpu-1")
    stage.sandbox.delays.termination_seconds = 20
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
    lifting = asyncio.create_task(lift_for_ever(stage, "gpu-1"))
    try:
        await stage.until(lambda: stage.hold("gpu-1") in ("Uncordoned", "ComesBack"))
        said = sentence(stage.operator.plan.holds["gpu-1"])
        assert said.startswith("somebody has lifted the cordon of the upgrade ")
        assert "pods come to the node: ml/inf-" in said
        assert reason_of(await explanation_of(stage, "gpu-1")).startswith("somebody has lifted the cordon of the upgrade ")
        texts = stage.events("gpu-1", "Warning")
        assert any("Uncordoned: somebody has lifted" in text for text in texts)
        assert not [text for text in texts if "puts pods back" in text]
    finally:
        lifting.cancel()
    await stage.upgraded()


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_who_uncordons_a_node_once_in_mid_upgrade_is_told_of(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await stage.rest(5)  # as long as its device plugin goes first, it is cordoned anew
    assert not [text for text in stage.events("gpu-1", "Warning") if "lifted" in text]
    await stage.cordon("gpu-1", wanted=False)
    await stage.rest(2)
    lifted = "the cordon of the driver upgrade that is under way here has been lifted"
    assert [note for note in (await explanation_of(stage, "gpu-1")).notes if note.startswith(lifted)]
    await stage.upgraded()
    told = [event for event in stage.sandbox.store.list("events", "default") if event["reason"] == "GPUDriverUpgradeUncordoned"]
    assert [(event["type"], event["involvedObject"]["name"], event["count"]) for event in told] == [("Warning", "gpu-1", 1)]
    assert told[0]["message"].startswith(lifted)


@pytest.mark.parametrize("state", [State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED])
@pytest.mark.parametrize(("manager", "stays"), [("kubectl-cordon", True), ("kubectl", True), ("gpuward", False)])
def test_a_cordon_that_somebody_made_in_its_place_while_no_operator_looked_stays(state: State, manager: str, stays: bool) -> None:
    @on_stage(gpu_nodes=1, upgrade=ALL)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == state)
        await stage.kill_operator()
        set_cordon(stage.sandbox.store, "gpu-1", False, manager)
        set_cordon(stage.sandbox.store, "gpu-1", True, manager)
        await stage.restart_operator()
        await stage.upgraded()
        await stage.rest(60)
        assert stage.cordoned("gpu-1") is stays

    scenario()
