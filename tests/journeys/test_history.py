"""What the nodes remember of their upgrades, on rollouts that are played: as long as the world saw them take."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from gpuward import names
from gpuward.cli.history import rollout_table, summary
from gpuward.cli.leftovers import cleaning_of
from gpuward.cli.rollouts import all_nodes, time_of
from gpuward.kube import resources
from gpuward.model.history import ROOM, Ending, PastUpgrade, history_of
from gpuward.model.states import State
from gpuward.report.rollouts import PastRollout, past_rollouts
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request
from kubesandbox.sim.faults import Fault
from tests.contract.api import APPLY_PATCH
from tests.journeys.kernels import runs_kernel
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver, set_driver


async def remembered(stage: Stage) -> list[PastRollout]:
    """Return the rollouts as `gpuward history` has them."""
    return past_rollouts(await all_nodes(stage.user), time_of(stage.user))


def history(stage: Stage, node: str) -> tuple[PastUpgrade, ...]:
    return history_of(stage.node(node)["metadata"]["annotations"].get(names.UPGRADE_HISTORY))


def ask_as(stage: Stage, manager: str, version: str) -> None:
    """Ask for a driver by a server-side apply of a field manager."""
    body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": POLICY},
            "spec": {"driver": {"version": version}}}
    path, query = f"/apis/nvidia.com/v1/clusterpolicies/{POLICY}", {"fieldManager": manager, "force": "true"}
    answer = stage.sandbox.api.handle(Request("PATCH", path, query, json.dumps(body).encode(), APPLY_PATCH))
    assert isinstance(answer, Answer)
    assert answer.status == 200, answer.body


def seconds_out(stage: Stage, node: str) -> float:
    """Return how long a node was cordoned since `watch_limits`, by what its object was like."""
    moments = [moment for moment in stage.history[stage._marked:] if moment.node == node]
    until = [*(moment.at for moment in moments[1:]), stage.clock.now()]
    return sum(end - moment.at for moment, end in zip(moments, until, strict=True) if moment.cordoned)


@on_stage(gpu_nodes=3)
async def test_a_rollout_is_remembered_as_it_went(stage: Stage) -> None:
    await stage.installed()
    assert await remembered(stage) == []
    await stage.deploy("serving", node="gpu-1")
    stage.run_pod("training", "gpu-2")
    await stage.patch_policy("driver/upgradePolicy/podDeletion", {"force": True})
    await stage.rest(1000)
    stage.watch_limits()
    ask_as(stage, "argocd-controller", NEW)
    await stage.upgraded()
    (rollout,) = await remembered(stage)
    assert rollout.asked == ("argocd-controller",)
    assert (rollout.policy, rollout.before, rollout.to) == ("ClusterPolicy", {OLD: 3}, NEW)
    assert (rollout.outcomes, rollout.failures, rollout.evicted) == ({"done": 3}, 0, 2)
    for one in rollout.upgrades:
        assert one.past.out == pytest.approx(seconds_out(stage, one.node), abs=1)
        assert one.past.gpus == int(stage.labels(one.node)["nvidia.com/gpu.count"])
        assert one.past.seconds == pytest.approx(one.past.out, abs=3)
        assert min(one.past.spent[2:]) > 0
    assert rollout.lost == pytest.approx(1000, abs=120), "what served goes on elsewhere; what trained does not"
    assert rollout.gpu_seconds == sum(one.past.out * one.past.gpus for one in rollout.upgrades)


@on_stage(gpu_nodes=2)
async def test_it_costs_no_write_of_its_own(stage: Stage) -> None:
    await stage.installed()
    patched: list[str] = []
    stage.sandbox.store.subscribe(lambda event: patched.append(
        event.obj["metadata"]["annotations"].get(names.UPGRADE_HISTORY, "")), "nodes")
    await stage.upgrade_to()
    await stage.upgraded()
    changes = [text for number, text in enumerate(patched) if text and text not in patched[:number]]
    assert len(changes) == 2, "one for each node, at its end"
    assert all(len(text.encode()) <= ROOM for text in changes)


@on_stage(gpu_nodes=2)
async def test_a_failure_and_its_retry_are_one_upgrade(stage: Stage) -> None:
    await stage.installed()
    broken = Fault(FaultKind.DRIVER_CRASH, node="gpu-1")
    stage.sandbox.faults.add(broken)
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
    (failed,) = history(stage, "gpu-1")
    assert (failed.ending, failed.failures, failed.failed_in, failed.to) == (
        Ending.FAILED, 1, "pod-restart-required", NEW)
    assert failed.out == pytest.approx(seconds_out(stage, "gpu-1"), abs=2)
    stage.sandbox.faults.clear(broken)
    await stage.upgraded(within=7200)
    (done,) = history(stage, "gpu-1")
    assert (done.ending, done.failures, done.began) == (Ending.DONE, 1, failed.began)
    assert done.out == pytest.approx(seconds_out(stage, "gpu-1"), abs=3), "also while it waited for its next attempt"
    (rollout,) = await remembered(stage)
    assert (rollout.failures, rollout.outcomes) == (1, {"done": 2})


@on_stage(gpu_nodes=3)
async def test_an_operator_that_restarts_in_mid_upgrade_loses_nothing(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    for state in (State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED):
        await stage.until(lambda state=state: str(state) in stage.states().values())  # type: ignore[misc]
        await stage.restart_operator()
    await stage.upgraded()
    (rollout,) = await remembered(stage)
    assert (rollout.before, rollout.to, rollout.outcomes) == ({OLD: 3}, NEW, {"done": 3})
    for one in rollout.upgrades:
        assert one.past.out == pytest.approx(seconds_out(stage, one.node), abs=1)


@on_stage(gpu_nodes=2)
async def test_a_pause_is_time_out_of_service_and_no_time_of_a_step(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.until(lambda: "pod-restart-required" in stage.states().values())
    (node,) = [name for name, state in stage.states().items() if state == "pod-restart-required"]
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(5000)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.upgraded()
    (past,) = history(stage, node)
    assert past.out == pytest.approx(seconds_out(stage, node), abs=1), "the driver manager lifted our cordon in the pause"
    assert past.seconds < past.ended - past.began + 1


@on_stage(gpu_nodes=2)
async def test_a_rollout_that_is_taken_back_is_told_of_as_that(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/upgradePolicy/podDeletion", {"force": True})
    await stage.patch_policy("driver/upgradePolicy/waitForCompletion", {"podSelector": "app=job"})
    stage.run_pod("job", "gpu-1")
    await stage.rest(60)
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-1") == "wait-for-jobs-required")
    rollouts = await remembered(stage)
    assert rollouts[0].ended is None
    assert rollouts[0].outcomes["under way"] == 1
    await stage.patch_policy("driver/version", OLD)
    await stage.until(lambda: stage.finished(OLD))
    (last, *_) = history(stage, "gpu-1")
    assert last.ending is Ending.BACK
    assert last.evicted == 0


@on_stage(gpu_nodes=2)
async def test_garbage_is_as_good_as_nothing(stage: Stage) -> None:
    await stage.installed()
    for node, text in (("gpu-1", "[" * 5000), ("gpu-2", '[{"began":"2026-01-01T00:00:00Z","took":"x"}]')):
        await stage.user.patch_merge(resources.NODES, node, {"metadata": {"annotations": {names.UPGRADE_HISTORY: text}}})
    assert await remembered(stage) == []
    await stage.upgrade_to()
    await stage.upgraded()
    (rollout,) = await remembered(stage)
    assert len(rollout.upgrades) == 2


@on_stage(gpu_nodes=4)
async def test_nvidia_drivers_have_rollouts_of_their_own(stage: Stage) -> None:
    for node, pool in (("gpu-1", "a"), ("gpu-2", "a"), ("gpu-3", "b"), ("gpu-4", "b")):
        await stage.label(node, "pool", pool)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b"))
    await stage.installed()
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: all(history(stage, node) for node in ("gpu-1", "gpu-2")), within=3600)
    await set_driver(stage, "b", {"version": NEW})
    await stage.until(lambda: stage.finished(NEW), within=3600)
    second, first = await remembered(stage)
    assert (first.policy, [one.node for one in first.upgrades], first.before) == ("NVIDIADriver a", ["gpu-1", "gpu-2"], {OLD: 2})
    assert (second.policy, {one.node for one in second.upgrades}, second.to) == ("NVIDIADriver b", {"gpu-3", "gpu-4"}, NEW)


@on_stage(gpu_nodes=3)
async def test_precompiled_drivers_of_two_kernels_are_one_rollout(stage: Stage) -> None:
    other = stage.labels("gpu-1")[names.NFD_KERNEL].replace("5.", "6.")
    await runs_kernel(stage, "gpu-3", other)
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.installed()
    await stage.patch_policy("driver/version", "590")
    await stage.until(lambda: all(one.to == "590" for node in stage.states() for one in history(stage, node)[:1] or [
        PastUpgrade(0, 0)]) and stage.all_are(State.DONE), within=7200)
    rollout, *_ = await remembered(stage)
    assert (rollout.to, rollout.before, rollout.outcomes) == ("590", {"580": 3}, {"done": 3})


@on_stage(gpu_nodes=2)
async def test_cleanup_and_recreation_leave_no_history(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to()
    await stage.upgraded()
    raw = json.dumps(stage.node("gpu-1")).encode()
    cleaning = cleaning_of(raw, [], names.DEFAULT_NAMESPACE)
    assert cleaning.patch is not None
    assert cleaning.patch.annotations[names.UPGRADE_HISTORY] is None


@on_stage(gpu_nodes=3)
async def test_a_driver_that_is_deleted_in_mid_upgrade_is_removed_from_nodes_and_not_turned_back(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", {"autoUpgrade": True, "maxUnavailable": 1}, default=True))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    await set_driver(stage, "default", {"version": NEW})
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    await stage.rest(5)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.until(lambda: not stage.cordons() and set(stage.states().values()) == {""} and not driver_pods(stage))
    await stage.rest(300)
    (told,) = await remembered(stage)
    assert (told.policy, told.to, told.before) == ("NVIDIADriver default", "none", {OLD: 3})
    assert told.outcomes == {"done": 3}


@pytest.mark.parametrize(("state", "changed"), [(State.POD_DELETION_REQUIRED, 0), (State.VALIDATION_REQUIRED, 1)])
def test_a_rollout_that_is_taken_back_says_from_what(state: State, changed: int) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("serving", 3)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: state in stage.states().values())
        await stage.restart_operator()
        await stage.upgrade_to(OLD)
        await stage.rest(1)
        await stage.until(lambda: stage.finished(OLD), within=3600)
        await stage.rest(60)
        (rollout,) = await remembered(stage)
        assert (rollout.before, rollout.to, rollout.back, rollout.changed) == ({OLD: 1}, OLD, NEW, changed)
        assert f"TO        {OLD}, taken back from {NEW}: {changed} of 1 node had been changed" in summary(rollout)
        console = Console(width=80)
        with console.capture() as capture:
            console.print(rollout_table([rollout], 80))
        title, row = capture.get().splitlines()
        assert "BACK FROM" in title
        assert f"{NEW}, {changed}/1 changed" in row

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_node_that_had_the_driver_from_which_a_rollout_is_taken_back_counts(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("serving", 3)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: any(stage.driver(node) == NEW and state == State.DONE for node, state in stage.states().items()))
    await stage.until(lambda: State.POD_DELETION_REQUIRED in stage.states().values())
    await stage.upgrade_to(OLD)
    await stage.rest(1)
    await stage.until(lambda: stage.finished(OLD), within=3600)
    await stage.rest(60)
    back, first = await remembered(stage)
    assert (back.before, back.to, back.back, back.changed) == ({NEW: 1, OLD: 1}, OLD, NEW, 1)
    assert (first.before, first.to, first.back) == ({OLD: 1}, NEW, "")
