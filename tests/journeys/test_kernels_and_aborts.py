"""An abort where drivers are precompiled: it holds a node too whose kernel changes after it."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.upgrade.words import VERSION
from tests.journeys.kernels import runs_kernel
from tests.journeys.stage import POLICY, Stage, on_stage
from tests.journeys.test_validation_off import ask_for_another, installed
from tests.journeys.test_waves import abort, resume, words_on

OTHER = "5.15.0-119-generic"


async def aborted(stage: Stage) -> list[str]:
    """Ask for another branch and abort that, before any node starts, and return the drivers that are loaded."""
    await installed(stage, "precompiled")
    await stage.deploy("train", node="gpu-1")
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await ask_for_another(stage, "precompiled")
    await stage.rest(10)
    assert (await abort(stage))[0].endswith(", for driver 590")
    return stage.drivers()


def on_another(stage: Stage, before: list[str]) -> bool:
    """Tell whether all nodes are done, and have one driver that is not the one that they had."""
    return stage.all_are(State.DONE) and len(stage.drivers()) == 1 and stage.drivers() != before


async def relabelled(stage: Stage, *nodes: str) -> None:
    for node in nodes:
        await runs_kernel(stage, node, OTHER)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.rest(600)


@pytest.mark.parametrize("moved", [["gpu-1"], ["gpu-1", "gpu-2"]])
def test_an_abort_holds_a_node_whose_kernel_changes_after_it(moved: list[str]) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        before = await aborted(stage)
        train = [pod["metadata"]["uid"] for pod in stage.workload_pods("train")]
        await relabelled(stage, *moved)
        assert (stage.drivers(), stage.hold("gpu-1"), stage.hold("gpu-2"), stage.cordons()) == (before, "Aborted", "Aborted", [])
        assert [pod["metadata"]["uid"] for pod in stage.workload_pods("train")] == train
        assert "aborted already" in (await abort(stage))[0]
        await resume(stage)
        await stage.until(lambda: on_another(stage, before), within=7200)

    story()


@on_stage(gpu_nodes=2)
async def test_it_holds_that_node_where_an_older_gpuward_wrote_it_too(stage: Stage) -> None:
    before = await aborted(stage)
    word = words_on(stage)[names.ABORTED].replace(f',"{VERSION}590"', "")
    assert VERSION not in word
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"metadata": {"annotations": {names.ABORTED: word}}})
    await relabelled(stage, "gpu-1")
    assert (stage.drivers(), stage.hold("gpu-1"), stage.hold("gpu-2"), stage.cordons()) == (before, "Aborted", "Aborted", [])


@on_stage(gpu_nodes=2)
async def test_another_version_ends_it_for_that_node_too(stage: Stage) -> None:
    before = await aborted(stage)
    await relabelled(stage, "gpu-1")
    await stage.patch_policy("driver/version", "600")
    await stage.until(lambda: on_another(stage, before), within=7200)
