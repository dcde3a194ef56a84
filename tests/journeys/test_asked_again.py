"""A node of which an upgrade is asked again and again: by a cron job, a GitOps tool or a person in a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.stage import NEW, Stage, on_stage

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}


async def ask(stage: Stage, node: str) -> None:
    """Ask for an upgrade of a node, as NVIDIA documents it."""
    await stage.user.patch_merge(resources.NODES, node, {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})


@asynccontextmanager
async def asked_for_ever(stage: Stage, *nodes: str) -> AsyncIterator[None]:
    """Let a tool put the request back whenever it is gone."""
    async def keep(node: str) -> None:
        while True:
            if names.UPGRADE_REQUESTED not in (stage.node(node)["metadata"].get("annotations") or {}):
                await ask(stage, node)
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(keep(node)) for node in nodes]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_node_that_is_asked_for_again_and_again_does_not_keep_the_others_from_their_driver(stage: Stage) -> None:
    await stage.installed()
    async with asked_for_ever(stage, "gpu-1"):
        await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == NEW, within=3600)
        before = len(stage.history)
        await stage.rest(600)
        assert any(one.node == "gpu-1" and one.state is State.VALIDATION_REQUIRED for one in stage.history[before:])
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_of_nodes_that_are_asked_for_each_has_its_turn(stage: Stage) -> None:
    await stage.installed()
    async with asked_for_ever(stage, "gpu-1", "gpu-2"):
        await stage.rest(600)
        stage.watch_limits()
        await ask(stage, "gpu-3")
        await stage.until(lambda: stage.entered("gpu-3")[-1:] == [State.DONE] and len(stage.entered("gpu-3")) > 2, within=900)
