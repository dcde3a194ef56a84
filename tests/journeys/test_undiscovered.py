"""A cluster without node feature discovery: what is offered there leads to a driver on every node."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from tests.cli.test_check import checked, lines
from tests.journeys.looking import condition_of, explanation_of, headline_of
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_withheld import set_driver

MEANT = {"ID": "ubuntu", "VERSION_ID": "22.04", "KERNEL": "5.15.0-101-generic"}


async def label_as_told(stage: Stage, told: str, nodes: int) -> None:
    """Do on every node with GPUs what a sentence offers, with what stands on the machines for the words in capitals."""
    _, _, words = told.partition("kubectl label node ")
    for pair in words.split()[1:]:
        key, _, value = pair.partition("=")
        for number in range(1, nodes + 1):
            await stage.label(f"gpu-{number}", key, MEANT.get(value, value))


@pytest.mark.parametrize("place", ["status", "condition", "check", "check-of-nodes-that-have-the-first-label"])
@pytest.mark.parametrize("precompiled", [False, True])
def test_the_command_that_is_offered_brings_drivers(place: str, precompiled: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        if precompiled:
            await set_driver(stage, {"usePrecompiled": True, "version": "580"})
        for node in [node["metadata"]["name"] for node in stage.sandbox.store.list("nodes")]:
            await forget(stage, node)
        await stage.rest(60)
        if place == "check-of-nodes-that-have-the-first-label":
            for number in (1, 2):
                await stage.label(f"gpu-{number}", names.NFD_GPU_LABELS[0], "true")
            await stage.rest(60)
        await label_as_told(stage, await said(stage, place), 2)
        await stage.installed()

    story()


async def forget(stage: Stage, node: str) -> None:
    """Leave a node as one that discovery, or gpuward, has never seen."""
    def bare(found: Any) -> None:
        labels = found["metadata"]["labels"]
        for key in [key for key in labels if key.startswith((names.NFD_PREFIX, "nvidia.com/", names.OWN_PREFIX))]:
            del labels[key]

    stage.sandbox.store.modify("nodes", None, node, bare)


async def said(stage: Stage, place: str) -> str:
    if place == "status":
        return await headline_of(stage)
    if place == "condition":
        return condition_of(stage, "Ready")[2]
    return next(line for line in lines(await checked(stage.sandbox)) if "kubectl label node" in line)


@on_stage(gpu_nodes=2)
async def test_nodes_with_the_label_of_a_gpu_alone_are_no_fault_of_the_policy(stage: Stage) -> None:
    for number in (1, 2):
        await forget(stage, f"gpu-{number}")
        await stage.label(f"gpu-{number}", names.NFD_GPU_LABELS[0], "true")
    await stage.rest(60)
    assert (await headline_of(stage)).startswith(
        "ClusterPolicy cluster-policy cannot be followed: no GPU node has labels of its operating system: install node feature")
    (problem,) = [line for line in lines(await checked(stage.sandbox), "fail") if line.startswith("fail policy")]
    assert problem.startswith("fail policy ClusterPolicy cluster-policy cannot be followed: no GPU node has labels of its "
                              "operating system -> install node feature discovery, or label nodes")
    assert "kubectl edit" not in problem


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": 0})
async def test_explain_does_not_send_people_to_the_policy_for_labels_of_nodes(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.rest(60)
    for number in (1, 2):
        for key in (names.NFD_OS_ID, names.NFD_OS_VERSION):
            await stage.label(f"gpu-{number}", key, None)
    await stage.until(lambda: stage.hold("gpu-1") == "InvalidPolicy")
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert remedy.do.startswith("ClusterPolicy cluster-policy cannot be followed: no GPU node has labels of its operating system")
    assert remedy.commands == ()
