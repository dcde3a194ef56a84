"""Clocks that differ, and times that nobody can have written: no wait ends early or late, and no node holds up another."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.timeloop import LoopClock
from tests.journeys.stage import NEW, Stage, blind_to_budgets, on_stage

ALL: dict[str, Any] = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}
ABSURD = '{"state":"node-maintenance-required","since":"9999-12-31T23:59:59Z","paused":"2020-01-01T00:00:00Z"}'
DEEP = '{"a":' * 20_000


class Skewed(LoopClock):
    """Tell a time that is off."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def now(self) -> float:
        """Return what the machine takes for the time."""
        return super().now() + self._ahead


async def operate(stage: Stage, ahead: float) -> None:
    """Put an operator in the place of the stage's whose machine's clock is off."""
    await stage.restart_operator(stage.new_operator(clock=Skewed(ahead)))


def since(stage: Stage, state: State) -> float:
    """Return when gpu-1 was last seen to enter a state."""
    return max(moment.at for moment in stage.history if moment.node == "gpu-1" and moment.state is state)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3600, 0), (-400, 0), (0, 400), (-400, 3600)])
def test_an_eviction_has_its_time_whatever_the_clocks_of_its_leaders_say(first: float, second: float) -> None:
    @on_stage(gpu_nodes=2, upgrade=ALL, interfere=blind_to_budgets)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("inference", node="gpu-1", max_unavailable=0)
        await operate(stage, first)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
        await stage.rest(2)
        await operate(stage, second)
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
        assert since(stage, State.FAILED) - since(stage, State.POD_DELETION_REQUIRED) == pytest.approx(300, abs=2.5)

    play()


@on_stage(gpu_nodes=1, upgrade=ALL, interfere=blind_to_budgets)
async def test_a_clock_that_is_set_while_the_operator_runs_changes_nothing(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    clock = Skewed(0)
    await stage.restart_operator(stage.new_operator(clock=clock))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
    clock._ahead = 3600
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    assert since(stage, State.FAILED) - since(stage, State.POD_DELETION_REQUIRED) == pytest.approx(300, abs=2.5)


@on_stage(gpu_nodes=6, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 2})
async def test_an_absurd_time_on_one_node_holds_no_other(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    year_1 = "0001-01-01T00:00:00+14:00"
    notes = {names.UPGRADE_RECORD: ABSURD, names.DISCOVERY_LOST: year_1, names.WAIT_FOR_JOBS_SINCE: "9" * 400}
    label = {names.UPGRADE_STATE: "node-maintenance-required"}
    await stage.user.patch_merge(resources.NODES, "gpu-6", {"metadata": {"annotations": notes, "labels": label}})
    await stage.until(lambda: [stage.state(f"gpu-{number}") for number in range(1, 6)] == [State.DONE] * 5, within=3600)
    assert [stage.driver(f"gpu-{number}") for number in range(1, 6)] == [NEW] * 5


@on_stage(gpu_nodes=2)
async def test_an_annotation_that_is_nested_too_deeply_ends_nothing_and_is_named(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "nonsense")
    deep = {"metadata": {"annotations": {names.VALID_UPGRADE_POLICY: DEEP, names.RESUMED_AT: DEEP}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", deep)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_RECORD: DEEP}}})
    await stage.until(lambda: names.VALID_UPGRADE_POLICY in stage.condition().get("message", ""))
    await stage.restart_operator()
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "100%")
    await stage.upgrade_to(NEW)
    await stage.upgraded()
