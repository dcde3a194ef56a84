"""One budget over GPU pods of many nodes: what one node claims of its room is no other's, whosever nodes they are."""

from __future__ import annotations

import pytest

from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, nvidia_driver, set_driver, with_pools

COMPLETIONS = {"waitForCompletion": {"podSelector": "app=job", "timeoutSeconds": 0}}


async def under_one_budget(stage: Stage) -> None:
    """Run a GPU pod on each node, which can run there alone, and let one of them all go at a time."""
    for node in stage.states():
        await stage.deploy(f"train-{node}", node=node)
    stage.sandbox.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"maxUnavailable": 1, "selector": {}},
                         "metadata": {"name": "all", "namespace": WORKLOAD_NAMESPACE}})
    await stage.rest(10)
    stage.watch_limits()


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_a_second_node_is_not_cordoned_while_the_budget_does_not_show_yet_that_a_pod_goes(stage: Stage) -> None:
    await stage.installed()
    await under_one_budget(stage)
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert stage.most_unavailable == 1


@pytest.mark.parametrize("drivers", ["ab", "ba"])
def test_nodes_of_two_nvidiadrivers_do_not_claim_the_same_room(drivers: str) -> None:
    @on_stage(gpu_nodes=6)
    async def scenario(stage: Stage) -> None:
        await with_pools(stage, nvidia_driver("a"), nvidia_driver("b"))
        await under_one_budget(stage)
        for name in drivers:
            await set_driver(stage, name, {"version": NEW})
        await stage.upgraded()
        assert stage.most_unavailable == 1

    scenario()


@on_stage(gpu_nodes=6)
async def test_room_that_a_node_waits_to_use_is_not_given_to_one_of_another_nvidiadriver(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", COMPLETIONS), nvidia_driver("b"))
    await stage.deploy("job", node="gpu-1")
    await under_one_budget(stage)
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: stage.state("gpu-1") == State.WAIT_FOR_JOBS_REQUIRED, within=1800)
    await set_driver(stage, "b", {"version": NEW})
    await stage.rest(300)
    assert stage.cordons() == ["gpu-1"]
    assert {stage.hold(node) for node in ("gpu-4", "gpu-5", "gpu-6")} == {"BudgetUsedUp"}
