"""Nodes whose labels change in mid-upgrade, so that their driver goes: what offers their GPUs goes first, as on idle nodes."""

from __future__ import annotations

import pytest

from gpuward.model.states import State
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_idle_node_changes import Begin, Change
from tests.journeys.test_leaving_in_mid_upgrade import (
    by_nvidia_driver,
    by_policy,
    precompiled,
    to_virtual_machines,
    without_operands,
)
from tests.journeys.test_node_workload import end, torn
from tests.journeys.test_nvidiadriver import driver_pods


@pytest.mark.parametrize("gap", [0.03, 0.6, 1.2, 1.8, 3.0])
@pytest.mark.parametrize("state", [State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED])
@pytest.mark.parametrize("leave", [to_virtual_machines, without_operands])
@pytest.mark.parametrize("begin", [by_policy, precompiled, by_nvidia_driver])
def test_a_pod_that_names_its_node_loses_no_driver(begin: Begin, leave: Change, state: State, gap: float) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await begin(stage)
        await stage.until(lambda: state in stage.states().values(), within=900)
        node = next(name for name, reached in stage.states().items() if reached == state)
        await leave(stage, node)
        await stage.rest(gap)
        stage.run_pod("late", node, owned=True)
        await stage.rest(400)
        assert torn(stage) == []
        for pod in stage.workload_pods("late"):
            await end(stage, pod["metadata"]["name"])
        await stage.until(lambda: not driver_pods(stage, node) and not stage.cordons(), within=1800)
        await stage.rest(60)
        assert (torn(stage), stage.cordons()) == ([], [])

    scenario()
