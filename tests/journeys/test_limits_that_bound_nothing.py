"""Limits that let every GPU node be out of service at once: people are told, before they do it, too."""

from __future__ import annotations

import pytest

from gpuward.cli.plan import as_json, lines
from tests.journeys.looking import condition_of, screen_of, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE
from tests.journeys.test_plan import plan_of
from tests.journeys.test_rolloutpolicy import apply

TOLD = "maxUnavailable 100% and maxParallelUpgrades 0 let all 3 GPU nodes be out of service at once"


@on_stage(3)
async def test_a_policy_that_is_not_applied_yet_is_warned_of(stage: Stage) -> None:
    await stage.installed()
    assert not any("warning" in line for line in [*await screen_of(stage), *lines(await plan_of(stage, NEW))])
    await stage.patch_policy("driver/upgradePolicy", {"autoUpgrade": True, **ALL_AT_ONCE})
    found = await plan_of(stage, NEW)
    assert list(lines(found)).count(f"warning: {TOLD}") == 1
    assert as_json(found)["warnings"] == [TOLD]
    assert (await screen_of(stage)).count(f"warning: {TOLD}") == 1
    assert (await status_of(stage))["warnings"][-1] == TOLD
    await stage.rest(60)
    assert TOLD not in condition_of(stage)[2], "nothing is to be done now"
    await stage.upgrade_to(NEW)
    await stage.rest(20)
    assert condition_of(stage)[2].count(TOLD) == 1


@pytest.mark.parametrize("upgrade", [
    {"maxUnavailable": "100%"}, {"maxUnavailable": 2, "maxParallelUpgrades": 0}, {"maxUnavailable": 3, "maxParallelUpgrades": 2}])
def test_a_limit_that_is_left_needs_no_warning(upgrade: dict[str, object]) -> None:
    @on_stage(3, upgrade=upgrade)
    async def story(stage: Stage) -> None:
        await stage.installed()
        assert (await status_of(stage))["warnings"] == []

    story()


@on_stage(3, upgrade=ALL_AT_ONCE)
async def test_waves_are_a_limit(stage: Stage) -> None:
    await stage.installed()
    assert (await status_of(stage))["warnings"] == [TOLD]
    await apply(stage, waves=[{"name": "canary", "nodes": 1}])
    await stage.rest(10)
    assert (await status_of(stage))["warnings"] == []
