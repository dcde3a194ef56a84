"""What `gpuward status` quotes of the operator is what nobody can see without it."""

from __future__ import annotations

from tests.journeys.looking import screen_of
from tests.journeys.stage import NEW, Stage, on_stage


@on_stage(gpu_nodes=2)
async def test_a_budget_that_refuses_is_told_by_the_node_and_not_quoted_once_more(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("tied", 2, node="gpu-1", max_unavailable=1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused", 3600)
    await stage.rest(60)
    lines = await screen_of(stage)
    assert any("gpu-1" in line and "may not be evicted now" in line for line in lines)
    assert not any("operator said" in line or "operator says" in line for line in lines)
