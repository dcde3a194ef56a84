"""What people say of a rollout and gpuward cannot read: whoever looks at the rollout is told, and not in the log alone."""

from __future__ import annotations

import json

from gpuward import names
from gpuward.kube import resources
from tests.journeys.looking import condition_of, screen_of, status_of
from tests.journeys.stage import NEW, POLICY, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_waves import ALL_AT_ONCE, CANARY, approve

UNREAD = "metadata.annotations['gpuward.io/approved']: 'canary' cannot be used: remove it, or let `gpuward approve` write it"


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_an_approval_written_by_hand_that_cannot_be_read_is_told_where_people_look(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired", within=2400)
    note = {"metadata": {"annotations": {names.APPROVED: "canary"}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, note)
    await stage.rest(60)
    assert UNREAD in condition_of(stage)[2]
    assert any(UNREAD in line for line in await screen_of(stage, 300))
    assert UNREAD in json.dumps((await status_of(stage))["warnings"])
    await approve(stage)
    await stage.upgraded()
    assert UNREAD not in condition_of(stage)[2]


@on_stage(gpu_nodes=2)
async def test_the_condition_of_the_cluster_policy_says_what_is_wrong_with_the_rollout_policy(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"kind": "Allow", "schedule": "0 2 30 2 *", "duration": "4h"}])
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "InvalidPolicy")
    await stage.rest(60)
    status, reason, message = condition_of(stage)
    assert (status, reason) == ("False", "InvalidPolicy")
    assert "RolloutPolicy default cannot be followed: spec.windows[0].schedule: '0 2 30 2 *'" in message
    await edit(stage, windows=None)
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_an_annotation_without_end_keeps_no_status_from_being_written(stage: Stage) -> None:
    """What it says is quoted in the condition, which an API server takes up to a length: else the whole status is refused."""
    await stage.installed()
    await stage.rest(60)
    note = {"metadata": {"annotations": {names.RESUMED_AT: '{"a":' * 8000}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, note)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "gpuward.io/resumed-at" in condition_of(stage)[2])
    assert len(condition_of(stage)[2]) < 1500
    await stage.upgraded()
