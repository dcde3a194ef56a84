"""What was decided about operands, recorded as it is played, comes out again from what is on disk, which has no secrets in it."""

from __future__ import annotations

from gpuward import names
from gpuward.cli.rerun_operands import rerun_operands
from gpuward.kube import resources
from gpuward.recorder.reading import OperandMoment
from gpuward.recording.operands import Concern
from kubesandbox.builders import Object
from tests.journeys.stage import NEW, POLICY, Stage, on_stage
from tests.journeys.test_nvidiadriver import make, nvidia_driver
from tests.recorder.flights import Flight
from tests.recorder.test_secrets import SECRET, plant, unpacked

ALL_AT_ONCE = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}


def differing(found: list[OperandMoment]) -> list[tuple[str, ...]]:
    """Return in what moments come out differently."""
    return [again.differences for again in map(rerun_operands, found) if again.differences]


def writes(found: list[OperandMoment], action: str) -> set[str]:
    """Return the objects about which an action was decided."""
    return {write.about for moment in found for write in moment.frame.decided.writes if write.action == action}


def reasons(found: list[OperandMoment]) -> list[str]:
    """Return what was said of policies, each time that it was something else."""
    said = [verdict.reason for moment in found for verdict in moment.frame.decided.verdicts.values()]
    return [reason for number, reason in enumerate(said) if number == 0 or said[number - 1] != reason]


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_what_a_policy_with_secrets_brings_about_is_decided_the_same_again(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await plant(stage)
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.upgraded(NEW)
    await stage.restart_operator()
    flight.board(stage)
    await stage.patch_policy("driver/env", [{"name": "HTTPS_PROXY", "value": f"{SECRET}other"}])
    await stage.rest(60)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "few")
    await stage.rest(60)
    found = flight.operands()
    assert all(moment.frame.comparable for moment in found)
    assert differing(found) == []
    assert f"DaemonSet {names.DEFAULT_NAMESPACE}/{names.DRIVER_APP}" in writes(found, "ApplyObject")
    assert reasons(found)[-2:] == ["Reconciled", "ReconcileFailed"]
    assert any(moment.digests for moment in found), "objects with secrets have other digests without them"
    assert SECRET.encode() not in unpacked(flight.folder)


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_nvidiadrivers_are_decided_the_same_again(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    env = [{"name": "TOKEN", "value": f"{SECRET}driver"}]
    await make(stage, nvidia_driver("default", default=True, version=NEW, env=env, annotations={"x": f"{SECRET}note"}))
    await stage.rest(600)
    await make(stage, nvidia_driver("wrong", nodeSelector={names.DRIVER_OWNER: "x"}))
    await stage.rest(60)
    found = [moment for moment in flight.operands() if moment.frame.concern is Concern.NVIDIA_DRIVER]
    assert all(moment.frame.comparable for moment in found)
    assert differing(flight.operands()) == []
    assert any("default" in about for about in writes(found, "ApplyObject"))
    assert "wrong" in found[-1].frame.decided.verdicts
    assert SECRET.encode() not in unpacked(flight.folder)


@on_stage(gpu_nodes=1)
async def test_what_went_wrong_is_recorded_without_what_the_server_says_about_the_object(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await stage.installed()
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, broken())
    await stage.rest(60)
    found = flight.operands()
    assert differing(found) == []
    assert SECRET.encode() not in unpacked(flight.folder)


def broken() -> Object:
    """Return an edit that a schema of an older version would let through."""
    return {"spec": {"toolkit": {"env": [{"name": "", "value": SECRET}]}}}
