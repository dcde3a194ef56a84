"""A wave whose nodeSelector matches no node tries nothing: people are told before the others start with the driver, and then."""

from __future__ import annotations

from gpuward.cli.plan import as_json
from tests.journeys.looking import screen_of, status_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_plan import plan_of
from tests.journeys.test_rolloutpolicy import apply

TOLD = "no node counts in wave canary of the RolloutPolicy (see its nodeSelector): later waves do not wait"


@on_stage(gpu_nodes=2)
async def test_a_wave_that_has_no_node_is_warned_of_until_it_has_one(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{"name": "canary", "nodeSelector": {"pool": "canary"}, "soak": "10m"}])
    await stage.rest(5)
    assert (await status_of(stage))["warnings"] == [TOLD]
    assert f"warning: {TOLD}" in await screen_of(stage)
    assert as_json(await plan_of(stage, NEW))["warnings"] == [TOLD]
    await stage.label("gpu-1", "pool", "canary")
    await stage.rest(5)
    assert (await status_of(stage))["warnings"] == []
    assert as_json(await plan_of(stage, NEW))["warnings"] == []
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert (await status_of(stage))["warnings"] == []


@on_stage(gpu_nodes=2)
async def test_one_that_wants_approval_is_waited_for_all_the_same(stage: Stage) -> None:
    """People were told before a rollout that later waves do not wait, and found them waiting in it."""
    told = ("no node counts in wave canary of the RolloutPolicy (see its nodeSelector): nothing is tried there, and later waves "
            "wait for approval alone")
    await stage.installed()
    await apply(stage, waves=[{"name": "canary", "nodeSelector": {"pool": "canary"}, "approval": "Required"}])
    await stage.rest(5)
    assert (await status_of(stage))["warnings"] == [told]
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    assert (await status_of(stage))["warnings"] == [], "the reason of each node says it"
