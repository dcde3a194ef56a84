"""A RolloutPolicy that is deleted and made anew at once, as `kubectl replace --force` does: it is in force in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from gpuward import errors
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.looking import explanation_of, row_of, status_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_node_workload import torn
from tests.journeys.test_removed import users
from tests.journeys.test_rolloutpolicy import apply

SETTINGS: dict[str, dict[str, Any]] = {
    "WindowShut": {"windows": [{"schedule": "0 3 1 12 *", "duration": "1h"}]},
    "ApprovalRequired": {"waves": [{"name": "first", "nodes": 1, "approval": "Required"}]},
    "NoticeGiven": {"notice": {"before": "6h"}},
}


async def _asked(stage: Stage, reason: str) -> None:
    """Ask for another driver, and wait until nodes with workloads wait."""
    await stage.installed()
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await stage.patch_policy("driver/upgradePolicy/maxParallelUpgrades", 0)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "100%")
    await apply(stage, **SETTINGS[reason])
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    assert reason in {stage.hold(node) for node in stage.states()}


def _serves(stage: Stage) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the pods that use GPUs, the drivers that are loaded, and the nodes out of service."""
    return sorted(users(stage)), {node: stage.driver(node) for node in stage.states()}, stage.cordons()


@pytest.mark.parametrize("gap", [0.02, 1.0, 30.0])
@pytest.mark.parametrize("reason", list(SETTINGS))
def test_no_node_starts_in_between(reason: str, gap: float) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await _asked(stage, reason)
        before = _serves(stage)
        await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
        await stage.rest(gap)
        await apply(stage, **SETTINGS[reason])
        await stage.rest(600)
        assert _serves(stage) == before
        assert reason in {stage.hold(node) for node in stage.states()}

    scenario()


@on_stage(gpu_nodes=2)
async def test_what_one_has_allowed_ends_with_it(stage: Stage) -> None:
    await stage.installed()
    for node in stage.states():
        stage.run_pod(f"train-{node}", node, owned=True)
    await apply(stage, removeAtOnce=True)
    await stage.rest(10)
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
    await stage.rest(1)
    await stage.patch_policy("driver/enabled", False)
    await stage.rest(45)
    assert torn(stage) == []


@on_stage(gpu_nodes=3)
async def test_one_that_stays_away_is_in_force_for_a_minute(stage: Stage) -> None:
    await _asked(stage, "WindowShut")
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
    await stage.rest(50)
    assert (stage.drivers(), stage.cordons()) == ([OLD], [])
    assert [line["rolloutPolicy"] for line in stage.log if "it stays in force for a minute" in line["msg"]] == ["default"]
    await stage.until(lambda: stage.drivers() == [NEW] and not stage.cordons(), within=1800)
    assert not [line for line in stage.log if line["level"] == "error"]


@pytest.mark.parametrize("reason", list(SETTINGS))
def test_no_node_starts_where_the_operator_is_restarted_in_between(reason: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await _asked(stage, reason)
        before = _serves(stage)
        await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
        await stage.rest(10)
        await stage.restart_operator()
        await stage.rest(50)
        assert _serves(stage) == before
        assert reason in {stage.hold(node) for node in stage.states()}
        await apply(stage, **SETTINGS[reason])
        await stage.rest(600)
        assert _serves(stage) == before

    scenario()


@on_stage(gpu_nodes=3)
async def test_one_that_stays_away_is_remembered_for_a_minute(stage: Stage) -> None:
    await _asked(stage, "WindowShut")
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
    await stage.restart_operator()
    await stage.until(lambda: stage.drivers() == [NEW] and not stage.cordons(), within=1800)
    await stage.restart_operator()
    await stage.rest(30)
    gone = [line for line in stage.log if "it stays in force for a minute" in line["msg"]]
    assert len(gone) == 1, "it is forgotten by then"


@pytest.mark.parametrize("reason", list(SETTINGS))
def test_it_stays_in_force_while_nobody_may_see_whether_it_is_there(reason: str) -> None:
    def forbid(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "GET" and "/rolloutpolicies" in request.path:
            return refusal(errors.Forbidden("rolloutpolicies.gpuward.io is forbidden"))
        return proceed()

    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await _asked(stage, reason)
        before = _serves(stage)
        stage.transport.interfere = forbid
        await stage.restart_operator()
        await stage.rest(1800)
        assert _serves(stage) == before
        assert reason in {stage.hold(node) for node in stage.states()}
        await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.until(lambda: stage.drivers() == [NEW] and not stage.cordons(), within=3600)

    scenario()


@on_stage(gpu_nodes=2)
async def test_who_looks_within_that_minute_is_told_what_the_operator_goes_by(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{"name": "canary", "nodes": 1, "approval": "Required"}])
    await stage.rest(5)
    await stage.upgrade_to()
    await stage.until(lambda: "ApprovalRequired" in {stage.hold(node) for node in stage.states()})
    waits = next(node for node in stage.states() if stage.hold(node) == "ApprovalRequired")
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
    await stage.rest(20)
    assert stage.hold(waits) == "ApprovalRequired"
    assert (await row_of(stage, waits)).code == "ApprovalRequired"
    told = [each for each in (await status_of(stage))["warnings"] if each.startswith("RolloutPolicy default was deleted")]
    assert len(told) == 1
    assert told[0] in (await explanation_of(stage, waits)).notes, "who approves here, or waits for that, has less than a minute"
    await stage.until(lambda: stage.finished())
    assert (await status_of(stage))["warnings"] == []
    assert not [note for note in (await explanation_of(stage, waits)).notes if "RolloutPolicy" in note]


def test_who_may_not_list_them_is_not_told_that_it_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, waves=[{"name": "canary", "nodes": 1, "approval": "Required"}])
        await stage.rest(5)
        monkeypatch.setattr(stage.sandbox, "transport", partial(_forbidden, stage.sandbox.transport))
        assert (await status_of(stage))["warnings"] == [
            "RolloutPolicies cannot be listed: default, the last one that is known, is taken to be in force"]

    scenario()


@on_stage(gpu_nodes=2)
async def test_who_looks_later_is_told_of_none_though_the_cluster_policy_was_invalid_meanwhile(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{"name": "canary", "nodes": 1, "approval": "Required"}])
    await stage.rest(5)
    await stage.patch_policy("driver/version", "580@sha256:12")
    await stage.until(lambda: stage.policy_status().get("state") == "notReady")
    await stage.user.delete(resources.ROLLOUT_POLICIES, "default")
    await stage.rest(120)
    assert (await status_of(stage))["warnings"] == []


def _forbidden(make: Callable[[], Any]) -> Any:
    """Return a way to the cluster by which RolloutPolicies may not be read."""
    def forbid(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "GET" and "/rolloutpolicies" in request.path:
            return refusal(errors.Forbidden("rolloutpolicies.gpuward.io is forbidden"))
        return proceed()

    transport = make()
    transport.interfere = forbid
    return transport
