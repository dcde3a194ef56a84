"""What people are told of how long a rollout still takes, and whether that comes true."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuward.model.states import State
from tests.journeys.looking import condition_of, status_of
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_history import history
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_status_screen import SMALL, shown

METRIC = "gpuward_driver_upgrade_finish_timestamp_seconds"


@on_stage(gpu_nodes=3)
async def test_in_a_pause_nothing_is_said(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.upgraded()
    await stage.upgrade_to(OLD)
    await stage.until(lambda: "pod-restart-required" in stage.states().values())
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(60)
    assert (await status_of(stage))["estimate"] is None


@on_stage(gpu_nodes=20)
async def test_after_five_nodes_it_is_known_how_long_it_takes(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    assert (await status_of(stage))["estimate"] is None, "nothing is known yet"
    await stage.until(lambda: len(done(stage)) >= 5, within=7200)
    at = stage.clock.now()
    told = (await status_of(stage))["estimate"]
    assert told["fromNodes"] >= 5
    assert not told["fromEarlierRolloutsToo"]
    lines = await shown(stage, SMALL)
    assert any(line.startswith("  about ") and line.endswith(f"min left, from {told['fromNodes']} nodes") for line in lines)
    await stage.until(lambda: " left, from " in condition_of(stage)[2], within=60)
    (line,) = [line for line in stage.operator.metrics.text().decode().splitlines() if line.startswith(METRIC)]
    finish = float(line.split()[-1])
    await stage.upgraded(within=36000)
    took = stage.clock.now() - at
    assert told["secondsLeft"] == pytest.approx(took, rel=0.2)
    assert finish - at == pytest.approx(took, rel=0.2)
    assert METRIC + " " not in stage.operator.metrics.text().decode()
    assert (await status_of(stage))["estimate"] is None


def done(stage: Stage) -> list[str]:
    return [node for node in stage.states() if history(stage, node) and stage.state(node) == State.DONE]


@on_stage(gpu_nodes=20, upgrade={"maxParallelUpgrades": 4, "maxUnavailable": "100%"})
async def test_it_knows_how_many_go_on_at_once(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: len(done(stage)) >= 5, within=7200)
    at, told = stage.clock.now(), (await status_of(stage))["estimate"]
    await stage.upgraded(within=36000)
    assert told["secondsLeft"] == pytest.approx(stage.clock.now() - at, rel=0.2)


@on_stage(gpu_nodes=3)
async def test_what_earlier_rollouts_took_is_taken_first(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.upgraded()
    await stage.upgrade_to(OLD)
    await stage.until(lambda: "pod-restart-required" in stage.states().values())
    told: Any = (await status_of(stage))["estimate"]
    assert (told["fromNodes"], told["fromEarlierRolloutsToo"]) == (3, True)
    at = stage.clock.now()
    await stage.upgraded(OLD)
    assert told["secondsLeft"] == pytest.approx(stage.clock.now() - at, rel=0.3)


@on_stage(gpu_nodes=3)
async def test_where_a_node_is_held_nobody_knows_how_long(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.upgraded()
    await stage.deploy("bound", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(OLD)
    await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks")
    told = (await status_of(stage))["estimate"]
    assert (told["secondsLeft"], told["unknownBecause"]) == (None, "1 node needs somebody (BudgetBlocks)")
    assert "  time left unknown: 1 node needs somebody (BudgetBlocks)" in await shown(stage, SMALL)


@on_stage(gpu_nodes=3)
async def test_of_a_node_that_fails_again_and_again_the_others_tell_nothing(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("stubborn", node="gpu-1")
    stage.sandbox.trouble("gpu-1", "pod-does-not-end")
    await stage.upgrade_to()
    told: set[str] = set()
    for _ in range(2):
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=1200)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED, within=1200)
        told = {line for line in await shown(stage, SMALL) if line.startswith("  time left")}
    assert told == {"  time left unknown: gpu-1 has failed more than once, and may fail again"}
    again = [text for text in stage.events("cluster-policy") if "is in attempt 3" in text]
    assert again
    assert not [text for text in again if " left, from " in text], "nor is it said as attempt 3 starts"


@on_stage(gpu_nodes=12, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": "100%"})
async def test_a_rollout_that_will_be_late_is_told_how_many_nodes_at_once_would_do(stage: Stage) -> None:
    """And then, with as many as it says, it is done when it should be."""
    await stage.installed()
    begun = stage.clock.now()
    await stage.upgrade_to()
    await stage.until(lambda: len(done(stage)) >= 5, within=7200)
    each = (stage.clock.now() - begun) / 5
    by = datetime.fromtimestamp(stage.clock.now() + 4 * each, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await apply(stage, finishBy=by)
    await stage.until(lambda: " after finishBy: " in condition_of(stage)[2], within=60)
    found = (await status_of(stage))["estimate"]
    assert datetime.fromisoformat(found["finishBy"]) == datetime.fromisoformat(by)
    assert found["slackSeconds"] < 0
    assert 1 < found["nodesAtOnceThatWouldDo"] < 5
    lines = await shown(stage, SMALL)
    assert any(" nodes at once would do" in line for line in lines), lines
    await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", found["nodesAtOnceThatWouldDo"])
    await stage.upgraded(within=5 * each)
    assert stage.clock.now() <= datetime.fromisoformat(by).timestamp() + each / 2
