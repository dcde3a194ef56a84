"""Windows of waves: judged from the machines, the nodes of each wave start in its own windows."""

from __future__ import annotations

from gpuward.model.explain import sentence
from gpuward.model.states import State
from tests.journeys.looking import explanation_of
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_removed import COMPILED, MODES, installed
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_status_screen import shown
from tests.journeys.test_waves import ALL_AT_ONCE, on_new
from tests.journeys.test_windows import ask, window


@MODES
def test_the_canary_starts_in_its_own_window_and_the_others_in_that_of_the_rollout(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        canary = {"name": "canary", "nodes": 1, "windows": [window(1800, 3600)]}
        await apply(stage, waves=[canary], windows=[window(7200, 9000)])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.rest(1700)
        assert (on_new(stage, old), stage.cordons()) == ([], [])
        assert sentence(stage.operator.plan.holds["gpu-1"]).startswith(
            "the windows of wave canary let none of its nodes start now: they open at 2026-01-01 00:")
        assert stage.hold("gpu-2") == "WaveNotDone"
        await stage.rest(600)
        assert on_new(stage, old) == ["gpu-1"]
        await stage.rest(4200)
        assert on_new(stage, old) == ["gpu-1"], "the window of the canary is none of the others'"
        assert sentence(stage.operator.plan.holds["gpu-2"]).startswith("the windows of the RolloutPolicy let no node start now: ")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3000)

    scenario()


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_a_freeze_of_the_rollout_holds_a_wave_in_its_own_window(stage: Stage) -> None:
    await stage.installed()
    (old,) = stage.drivers()
    canary = {"name": "canary", "nodes": 1, "windows": [window(0, 7200)]}
    await apply(stage, waves=[canary], windows=[window(0, 1800, "Deny")])
    await stage.rest(5)
    await ask(stage, COMPILED)
    await stage.rest(1700)
    assert on_new(stage, old) == []
    await stage.rest(600)
    assert on_new(stage, old) == ["gpu-1", "gpu-2"], "without windows that allow starts the others may always start"


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_a_freeze_of_a_wave_holds_its_nodes_alone(stage: Stage) -> None:
    await stage.installed()
    (old,) = stage.drivers()
    night = {"name": "night", "nodeSelector": {"example.com/pool": "night"}, "windows": [window(0, 1800, "Deny")]}
    await stage.label("gpu-2", "example.com/pool", "night")
    await apply(stage, waves=[{"name": "canary", "nodeSelector": {"example.com/pool": "canary"}}, night])
    await stage.label("gpu-1", "example.com/pool", "canary")
    await stage.rest(5)
    await ask(stage, COMPILED)
    await stage.rest(1700)
    assert on_new(stage, old) == ["gpu-1"]
    explained = await explanation_of(stage, "gpu-2")
    assert [each.do for each in explained.remedies] == ["upgrade this node now", "take the windows from wave night"]
    assert all("this node starts" in each.then for each in explained.remedies)
    assert "night: 0 of 1 done, waits (1 WindowShut)" in "\n".join(await shown(stage))
    await stage.rest(600)
    assert on_new(stage, old) == ["gpu-1", "gpu-2"]


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_who_approves_is_told_of_the_window_of_the_wave_that_comes_next(stage: Stage) -> None:
    await stage.installed()
    (old,) = stage.drivers()
    for node, wave in ("gpu-1", "canary"), ("gpu-2", "night"):
        await stage.label(node, "example.com/pool", wave)
    night = {"name": "night", "nodeSelector": {"example.com/pool": "night"}, "windows": [window(0, 36000, "Deny")]}
    await apply(stage, waves=[{"name": "canary", "nodeSelector": {"example.com/pool": "canary"}, "approval": "Required"}, night])
    await stage.rest(5)
    await ask(stage, COMPILED)
    await stage.until(lambda: stage.hold("gpu-3") == "ApprovalRequired", within=900)
    (approve,) = [each for each in (await explanation_of(stage, "gpu-3")).remedies if each.do.startswith("approve of")]
    assert approve.then.startswith("this node then waits for its turn")
    shut = "the windows of wave night let none of its nodes start now: they open at "
    assert f", behind nodes that wait, too: {shut}" in approve.then
    assert on_new(stage, old) == ["gpu-1"]
