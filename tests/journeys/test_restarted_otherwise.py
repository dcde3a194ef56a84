"""Nodes whose driver pod is only to be restarted, and that are to get another driver before it is: nobody has been asked yet if
their pods may go.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.model.states import State
from tests.journeys.looking import condition_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_notice import notice_on
from tests.journeys.test_removed import users
from tests.journeys.test_restarted_only import torn
from tests.journeys.test_rolloutpolicy import apply


async def in_mere_restart(stage: Stage) -> str:
    """Change what makes the same driver in another pod, and wait for the first node that is to get it."""
    await stage.patch_policy("driver/resources", {"limits": {"memory": "3Gi"}})
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    return next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)


@pytest.mark.parametrize(("settings", "hold"), [
    ({"notice": {"before": "15m"}}, "NoticeGiven"),
    ({"opportunistic": {"idleFor": "5m", "until": "1h"}}, "IdleAwaited"),
], ids=["notice", "opportunistic"])
def test_pods_have_their_time_before_they_are_evicted_for_the_other_driver(settings: dict[str, Any], hold: str) -> None:
    @on_stage(gpu_nodes=1)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        pod = stage.run_pod("training", "gpu-1", owned=True)["metadata"]["uid"]
        await apply(stage, **settings)
        await stage.rest(10)
        node = await in_mere_restart(stage)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold(node) == hold, within=120)
        await stage.rest(600)
        assert (pod in users(stage), stage.driver(node)) == (True, OLD)
        assert bool(notice_on(stage, node)) is (hold == "NoticeGiven")
        await stage.upgraded(NEW, within=7200)
        await stage.until(lambda: condition_of(stage)[1] == "UpToDate" and not stage.cordons())
        assert torn(stage) == []

    scenario()


@on_stage(gpu_nodes=1)
async def test_a_pod_that_nobody_may_evict_makes_no_failure_of_it(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("notebook", "gpu-1")
    node = await in_mere_restart(stage)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold(node) == "ProtectedPods", within=120)
    await stage.rest(600)
    assert (stage.state(node), stage.driver(node)) == (State.UPGRADE_REQUIRED, OLD)
    assert "has failed" not in condition_of(stage)[2]
