"""Whole rollouts, recorded as they are played: every plan comes out again from what is on disk."""

from __future__ import annotations

from gpuward import names
from gpuward.model.states import State
from gpuward.recorder.ring import PATTERN, Limits
from gpuward.recording.digest import digest
from gpuward.recording.frame import Recorded
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply
from tests.recorder.flights import Flight, again, differing

TWO = {"maxUnavailable": "100%", "maxParallelUpgrades": 2}


@on_stage(gpu_nodes=4, upgrade=TWO)
async def test_a_rollout_with_a_failure_and_a_restart_decides_the_same_again(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await stage.installed()
    await stage.deploy("web", 4, max_unavailable=1)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, node="gpu-1", image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-2") == State.POD_RESTART_REQUIRED)
    await stage.restart_operator()
    flight.board(stage)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    await stage.upgrade_to(OLD)
    await stage.upgraded(OLD)
    found = flight.moments()
    assert len(list(flight.folder.glob(PATTERN))) == 2, "each process begins a file"
    assert differing(found) == []
    assert any(moment.shown["gpu-1"].state == "upgrade-failed" for moment in found if "gpu-1" in moment.shown)
    assert len(found) < len(flight.passes), "passes that decide nothing new take no room"


@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_what_is_read_is_what_was_seen(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await stage.installed()
    await stage.label("gpu-2", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-3") == State.DONE and stage.driver("gpu-3") == NEW)
    seen = {one.at: one for one in flight.passes}
    for moment in flight.moments():
        snapshot = seen[moment.at].snapshot
        assert moment.snapshot.nodes == snapshot.nodes
        assert moment.snapshot.pods == snapshot.pods
        assert (moment.snapshot.daemonsets, moment.snapshot.revisions) == (snapshot.daemonsets, snapshot.revisions)
        assert moment.policies == seen[moment.at].policies
        assert again(moment) == seen[moment.at].plan


@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_a_ring_that_wraps_keeps_the_newest_and_can_be_read(stage: Stage) -> None:
    flight = Flight(Limits(segment=20_000, total=60_000))
    flight.board(stage)
    await stage.installed()
    for version in (NEW, OLD, NEW):
        await stage.upgrade_to(version)
        await stage.upgraded(version)
    found = flight.moments()
    files = sorted(flight.folder.glob(PATTERN))
    assert sum(file.stat().st_size for file in files) <= 60_000
    assert files[0].name > "recording-00000001.gpuward"
    assert found[-1].frame.digest == digest(flight.passes[-1].plan), "the newest is there"
    assert differing(found) == []


@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_images_brought_beforehand_and_waves_decide_the_same_again(stage: Stage) -> None:
    flight = Flight()
    flight.board(stage)
    await stage.installed()
    check = {"name": "conditions", "nodeConditions": [{"type": "GpuNvlinkWatch"}], "for": "10s", "interval": "10s"}
    await apply(stage, prestage={"mode": "Image"}, waves=[{"name": "canary", "nodes": 1, "analysis": [check]}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == NEW)
    await stage.rest(120)
    assert any(action for each in flight.passes for action in each.plan.actions if not isinstance(action, Recorded))
    assert differing(flight.moments()) == []
