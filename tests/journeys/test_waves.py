"""Waves of a RolloutPolicy: judged from the machines and the pods, the canary goes first, and people let the others follow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuward import names
from gpuward.cli import words
from gpuward.cli.overview import headline
from gpuward.cli.resume import resume_paused
from gpuward.cli.waiting import stopped
from gpuward.errors import InputError
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.faults import Fault
from tests.cli.verbs import said
from tests.journeys.looking import condition_of, explanation_of, looking, obey, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, nvidia_driver, set_driver, with_pools
from tests.journeys.test_removed import COMPILED, MODES, NVIDIADRIVER, PRECOMPILED, installed, remove, users
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_status_screen import shown
from tests.journeys.test_windows import ask

CANARY = {"name": "canary", "nodes": 1}
SPACE = names.DEFAULT_NAMESPACE
ALL_AT_ONCE = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}


def on_new(stage: Stage, old: str = OLD) -> list[str]:
    """Return the nodes that have left the old driver, by what is loaded on their machines."""
    return [node for node in sorted(stage.states()) if stage.driver(node) != old]


async def approve(stage: Stage, wave: str = "", driver: str = "", *, dry_run: bool = False) -> list[str]:
    return await said(words.approve(stage.user, SPACE, wave, driver, dry_run=dry_run))


async def promote(stage: Stage, driver: str = "", *, wave: str = "", dry_run: bool = False) -> list[str]:
    return await said(words.promote(stage.user, SPACE, wave, driver, dry_run=dry_run))


async def abort(stage: Stage, driver: str = "", *, dry_run: bool = False) -> list[str]:
    return await said(words.abort(stage.user, SPACE, driver, dry_run=dry_run))


async def resume(stage: Stage, driver: str = "") -> list[str]:
    return await said(resume_paused(stage.user, driver, dry_run=False))


def words_on(stage: Stage) -> dict[str, str]:
    found = stage.sandbox.store.get("clusterpolicies.nvidia.com", None, "cluster-policy")["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if key in (names.APPROVED, names.PROMOTED, names.ABORTED)}


@MODES
def test_the_canary_goes_first_soaks_and_waits_for_approval_wherever_its_driver_comes_from(mode: str) -> None:
    @on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await apply(stage, waves=[{**CANARY, "soak": "30m", "approval": "Required"}])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
        assert on_new(stage, old) == ["gpu-1"]
        soaking = stage.operator.plan.holds["gpu-3"]
        assert sentence(soaking).startswith("wave canary is done and soaks until 2026-01-01 00:")
        await stage.restart_operator()
        await stage.rest(60)
        assert stage.operator.plan.holds["gpu-3"].until == soaking.until, "a new operator goes by the records"
        await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired", within=2400)
        await stage.rest(3600)
        assert on_new(stage, old) == ["gpu-1"]
        assert stage.cordons() == []
        first, following = await approve(stage)
        assert "approved of wave canary, by sandbox-admin at " in first
        assert following.startswith("Next: nodes of the next wave start")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3000)

    scenario()


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_what_people_read_says_which_wave_goes_and_what_a_node_waits_for(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "nodes": 2, "maxUnavailable": 1, "soak": "1h"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: len(on_new(stage)) == 1 and stage.hold("gpu-3") == "WaveNotDone")
    assert sentence(stage.operator.plan.holds["gpu-3"]).startswith("waits for wave canary: ")
    await stage.until(lambda: stage.hold("gpu-3") == "WaveSoaking")
    told = await status_of(stage)
    (rollout,) = told["waves"]
    assert [(one["name"], one["state"], one["nodes"], one["done"]) for one in rollout["waves"]] == [
        ("canary", "Soaks", 2, 2), ("all other nodes", "Waits", 1, 0)]
    assert rollout["waves"][0]["soaksUntil"] == told["nodes"][-1]["until"]
    assert told["groups"][-1] == {"group": "up to date", "nodes": 2, "reasons": {}}
    await stage.rest(60)
    held, reason, message = condition_of(stage)
    assert (held, reason) == ("False", "WaveSoaking")
    assert "wave canary is done and soaks until" in message
    explained = await explanation_of(stage, "gpu-3")
    assert [(remedy.do, remedy.commands) for remedy in explained.remedies] == [("let the next wave go now", ("gpuward promote",))]
    async with looking(stage) as picture:
        assert stopped(picture) == ""
    before = words_on(stage)
    with pytest.raises(InputError, match="WAVE: 'nope' cannot be used: name one of canary"):
        await promote(stage, wave="nope")
    dry = await promote(stage, wave="canary", dry_run=True)
    assert "would be promoted from wave canary, although it soaks; a dry run writes nothing" in dry[0]
    assert words_on(stage) == before
    said_then = (await promote(stage))[0]
    assert "promoted from wave canary, although it soaks, by sandbox-admin" in said_then
    assert said_then.endswith(f", for driver {NEW}")
    await stage.upgraded(NEW)
    again = await promote(stage)
    assert "there is nothing to promote, as no node waits for a wave: nothing is written" in again[0]


@on_stage(gpu_nodes=6)
async def test_a_soak_that_an_approval_follows_is_not_said_to_end_in_a_start(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("b", ALL_AT_ONCE))
    await apply(stage, waves=[{**CANARY, "soak": "1h", "approval": "Required"}])
    await stage.rest(5)
    await set_driver(stage, "b", {"version": NEW})
    await stage.until(lambda: stage.hold("gpu-5") == "WaveSoaking", within=1800)
    wanted = "; then it waits for approval: gpuward approve --driver b"
    assert sentence(stage.operator.plan.holds["gpu-5"]).endswith(wanted)
    told = await status_of(stage)
    assert [each["group"] for each in told["groups"]] == ["stopped", "up to date"]
    assert "go on by themselves" not in str(await shown(stage))
    (waves,) = [line for line in await shown(stage) if line.startswith("waves of NVIDIADriver b")]
    assert "then waits for approval: gpuward approve --driver b" in waves
    explained = await explanation_of(stage, "gpu-5")
    assert ("gpuward promote --driver b && gpuward approve --driver b",) in [each.commands for each in explained.remedies]
    await approve(stage, driver="b")
    await stage.rest(5)
    assert "approval" not in sentence(stage.operator.plan.holds["gpu-5"])
    assert [each["group"] for each in (await status_of(stage))["groups"]] == ["waiting", "up to date"]
    assert "approval" not in str([line for line in await shown(stage) if line.startswith("waves of")])
    await stage.until(lambda: on_new(stage) == ["gpu-4", "gpu-5", "gpu-6"] and stage.state("gpu-6") == State.DONE, within=5400)


@on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_a_driver_that_always_fails_fails_on_the_canary_alone_and_the_next_one_asks_again(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}], retries=0, failureBudget={"nodes": 9, "percent": 100},
                deadlines={"pod-restart-required": "2m"})
    await stage.rest(1)
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=1200)
    await stage.rest(3600)
    assert [stage.driver(node) for node in ("gpu-2", "gpu-3", "gpu-4")] == [OLD] * 3
    assert stage.hold("gpu-2") == "NewDriverFails"
    assert "canary: 0 of 1 done, 1 failed (gpu-1); all" in await waves_line(stage)
    await edit(stage, waves=[{**CANARY, "failureBudget": {"nodes": 1}}])
    await stage.rest(5)
    assert "canary: 0 of 1 done, waits (1 Failed); all" in await waves_line(stage)
    await edit(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(5)
    nothing = await approve(stage)
    assert "there is nothing to approve yet, as 0 of 1 nodes of wave canary are done: nothing is written" in nothing[0]
    assert "without waiting for gpu-1" in (await promote(stage, dry_run=True))[0]


@on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_a_wave_that_is_promoted_before_it_is_done_is_not_called_done(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") in IN_PROGRESS)
    assert "without waiting for gpu-1" in (await promote(stage))[0]
    await stage.rest(2)
    async with looking(stage) as picture:
        hold = picture.plan.nodes["gpu-2"].hold
    assert hold is not None
    assert sentence(hold) == (
        "wave canary is waited for no longer, with 0 of its 1 nodes done: waits for approval: gpuward approve")


@on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_an_approval_counts_for_no_other_driver(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    assert (await explanation_of(stage, "gpu-2")).remedies[0].commands == ("gpuward approve",)
    async with looking(stage) as picture:
        assert stopped(picture).startswith("ApprovalRequired: ")
        assert headline(picture).endswith("1 of 4 nodes up to date; the rollout has stopped: wave canary waits for approval")
    await abort(stage)
    before = words_on(stage)
    for told in (await approve(stage), await promote(stage)):
        assert "the rollout was aborted by " in told[0]
        assert told[0].endswith(", and `gpuward resume` lets it go on: nothing is written")
    assert words_on(stage) == before
    await resume(stage)
    await stage.rest(5)
    with pytest.raises(InputError, match="WAVE: 'rest' cannot be used: name one of canary"):
        await approve(stage, "rest")
    assert "would be approved of wave canary; a dry run writes nothing" in (await approve(stage, "canary", dry_run=True))[0]
    assert words_on(stage) == {}
    await approve(stage, "canary")
    await stage.upgraded(NEW)
    assert "there is nothing to approve, as no node waits for a wave" in (await approve(stage))[0]
    await stage.upgrade_to("600.20.02")
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    assert on_new(stage, NEW) == ["gpu-1"]


@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 2, "maxUnavailable": "100%"})
async def test_an_abort_starts_nobody_within_a_second_and_leaves_no_cordon(stage: Stage) -> None:
    await stage.installed()
    jobs = {stage.run_pod(f"job-{node}", node, owned=True)["metadata"]["uid"] for node in stage.states()}
    await stage.patch_policy("driver/upgradePolicy/waitForCompletion", {"podSelector": "app", "timeoutSeconds": 0})
    await stage.upgrade_to(NEW)
    await stage.until(lambda: list(stage.states().values()).count(State.WAIT_FOR_JOBS_REQUIRED) == 2)
    assert len(stage.cordons()) == 2
    assert "would be aborted; a dry run writes nothing" in (await abort(stage, dry_run=True))[0]
    first, following = await abort(stage)
    assert first.endswith(f", for driver {NEW}")
    assert "aborted, by sandbox-admin at " in first
    assert "; back into service, with the driver that they have, go " in following
    assert "let it go on with `gpuward resume`" in following
    await stage.rest(1)
    assert (stage.cordons(), on_new(stage)) == ([], [])
    await stage.rest(3600)
    assert (stage.cordons(), on_new(stage)) == ([], [])
    assert jobs <= users(stage)
    assert {stage.hold(node) for node in stage.states()} == {"Aborted"}
    assert condition_of(stage)[1] == "Aborted"
    async with looking(stage) as picture:
        assert stopped(picture).startswith("Aborted: 0 of 4 nodes up to date")
    assert "aborted already, by sandbox-admin" in (await abort(stage))[0]
    assert any("the abort is taken back, and what it held goes on" in line for line in await resume(stage))
    assert names.ABORTED not in words_on(stage)
    await stage.patch_policy("driver/upgradePolicy/waitForCompletion", {})
    await stage.upgraded(NEW)
    assert "there is nothing to abort" in (await abort(stage))[0]


async def waves_line(stage: Stage) -> str:
    (line,) = [each for each in await shown(stage) if each.startswith("waves ")]
    return line


async def wave_states(stage: Stage) -> list[str]:
    return [wave["state"] for wave in (await status_of(stage))["waves"][0]["waves"]]


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_the_line_of_waves_promises_nothing_while_nothing_starts(stage: Stage) -> None:
    await stage.installed()
    pods = [stage.run_pod(f"job-{node}", node) for node in stage.states()]
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "ProtectedPods")
    assert "canary: 0 of 1 done, waits (1 ProtectedPods); all other nodes: 0 of 2 done, waits" in await waves_line(stage)
    assert await wave_states(stage) == ["Waits", "Waits"]
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.until(lambda: stage.hold("gpu-1") == "Paused")
    assert "canary: 0 of 1 done, waits (1 Paused); all other nodes: 0 of 2 done, waits" in await waves_line(stage)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await abort(stage)
    await stage.rest(5)
    aborted = "; aborted by sandbox-admin, and `gpuward resume` lets it go on"
    assert f"canary: 0 of 1 done; all other nodes: 0 of 2 done{aborted}" in await waves_line(stage)
    assert await wave_states(stage) == ["Aborted", "Aborted"]
    await resume(stage)
    for pod in pods:
        await stage.user.delete(resources.PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    assert "canary: 1 of 1 done, waits for approval: gpuward approve; all" in await waves_line(stage)
    await abort(stage)
    await stage.until(lambda: stage.hold("gpu-2") == "Aborted")
    assert f"canary: 1 of 1 done; all other nodes: 0 of 2 done{aborted}" in await waves_line(stage)


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_words_count_on_when_only_labels_of_the_driver_pods_change(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    await abort(stage)
    await stage.until(lambda: stage.hold("gpu-2") == "Aborted")
    await stage.patch_policy("daemonsets/labels", {"team": "ml"})
    await stage.rest(60)
    assert stage.hold("gpu-2") == "Aborted"
    assert "waits for approval" not in await waves_line(stage)
    assert "the rollout was aborted by " in (await approve(stage))[0]
    assert "aborted already" in (await abort(stage))[0]


@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 2, "maxUnavailable": "100%"})
async def test_nodes_whose_driver_is_gone_finish_when_their_rollout_is_aborted(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: list(stage.states().values()).count(State.POD_RESTART_REQUIRED) == 2)
    begun = [node for node, state in stage.states().items() if state == State.POD_RESTART_REQUIRED]
    _, following = await abort(stage)
    assert f"under way, and to be finished: {', '.join(begun)}" in following
    await stage.rest(3600)
    assert stage.cordons() == []
    assert [node for node in sorted(stage.states()) if stage.driver(node) == NEW] == begun
    assert {stage.state(node) for node in begun} == {State.DONE}


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_another_driver_ends_an_abort(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    await abort(stage)
    await stage.until(lambda: stage.hold("gpu-2") == "Aborted", within=2)
    told = await explanation_of(stage, "gpu-2")
    assert ("gpuward resume",) in [remedy.commands for remedy in told.remedies]
    await edit(stage, waves=[])
    await stage.rest(600)
    assert on_new(stage) == ["gpu-1"]
    await stage.upgrade_to(OLD)
    await stage.until(lambda: stage.drivers() == [OLD] and stage.all_are(State.DONE))


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_garbage_in_the_annotations_approves_of_nothing_and_is_told(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    for garbage in ("yes", '{"at": 1}', '{"at":"9999-12-31T23:59:59Z","by":"x","targets":[""]}', "[" * 9999):
        patch = {"metadata": {"annotations": {key: garbage for key in (names.APPROVED, names.PROMOTED, names.ABORTED)}}}
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", patch)
        await stage.rest(30)
        assert (stage.hold("gpu-2"), on_new(stage)) == ("ApprovalRequired", ["gpu-1"])
    async with looking(stage) as picture:
        assert names.APPROVED in str(picture.active.resume_problem)
    await approve(stage)
    await stage.upgraded(NEW)


@MODES
@pytest.mark.parametrize("how", ["annotation", "label"])
def test_an_approval_counts_on_when_somebody_asks_for_a_node_of_the_canary_again(mode: str, how: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=3)
        (old,) = stage.drivers()
        await apply(stage, waves=[{**CANARY, "soak": "1h", "approval": "Required"}])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking", within=1800)
        first = stage.operator.plan.holds["gpu-2"].until
        await approve(stage)
        await stage.rest(600)
        if how == "annotation":
            patch = {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}}
            await stage.user.patch_merge(resources.NODES, "gpu-1", patch)
        else:
            await stage.label("gpu-1", names.UPGRADE_STATE, str(State.UPGRADE_REQUIRED))
        await stage.until(lambda: stage.state("gpu-1") in IN_PROGRESS)
        await stage.until(lambda: stage.state("gpu-1") == State.DONE, within=1800)
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
        soaking = stage.operator.plan.holds["gpu-2"]
        assert (soaking.until or 0.0) > (first or 0.0) + 600, "it soaks anew"
        assert "approval" not in sentence(soaking), "and was approved of"
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=2 * 3600)

    scenario()


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_who_promotes_a_wave_that_soaks_is_asked_for_an_approval_only_if_nobody_gave_one(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "soak": "24h", "approval": "Required"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert (await promote(stage, dry_run=True))[-1] == "Next: it waits for approval: gpuward approve"
    await approve(stage)
    assert (await promote(stage))[-1].startswith("Next: nodes of the next wave start")
    await stage.until(lambda: stage.drivers() == [NEW], within=1200)


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_who_approves_of_a_wave_that_was_promoted_is_told_which_nodes_are_left_out(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    stage.sandbox.trouble("gpu-1", "driver-hangs")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveNotDone")
    await promote(stage)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired")
    assert ("approved of wave canary, whose nodes are left out (gpu-1): nobody has seen the driver run there, by "
            in (await approve(stage))[0])


@on_stage(gpu_nodes=7, upgrade=ALL_AT_ONCE)
async def test_a_wave_of_many_nodes_is_said_to_wait_for_more_than_are_named(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "nodes": 6}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-7") == "WaveNotDone")
    told = "waits for wave canary: 0 of 6 nodes done (not yet: gpu-1, gpu-2, gpu-3 and 3 more)"
    assert sentence(stage.operator.plan.holds["gpu-7"]) == told


@MODES
def test_a_removal_waits_for_no_wave(mode: str) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        await apply(stage, waves=[{**CANARY, "soak": "24h", "approval": "Required"}])
        await stage.rest(5)
        await remove(stage, mode)
        await stage.until(lambda: not driver_pods(stage), within=3600)

    scenario()


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_nodes_that_join_and_leave_in_mid_rollout_move_no_node_that_has_begun(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "soak": "1h"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    until = stage.operator.plan.holds["gpu-2"].until
    await stage.label("gpu-3", names.UPGRADE_SKIP, "true")
    await stage.rest(60)
    assert stage.operator.plan.holds["gpu-2"].until == until
    stage.sandbox.store.delete("nodes", None, "gpu-1")
    await stage.until(lambda: stage.hold("gpu-2") != "WaveSoaking")
    await stage.until(lambda: stage.driver("gpu-2") == NEW and stage.state("gpu-2") == State.DONE)
    assert stage.driver("gpu-3") == OLD


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_a_pause_in_a_soak_starts_it_not_anew(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "soak": "1h"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    until = stage.operator.plan.holds["gpu-2"].until
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.rest(600)
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", True)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    assert stage.operator.plan.holds["gpu-2"].until == until
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=6)
async def test_each_nvidiadriver_has_waves_and_approvals_of_its_own(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a", ALL_AT_ONCE), nvidia_driver("b", ALL_AT_ONCE))
    await apply(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.rest(5)
    for pool in "ab":
        await set_driver(stage, pool, {"version": NEW})
    await stage.until(lambda: {stage.hold("gpu-2"), stage.hold("gpu-5")} == {"ApprovalRequired"}, within=1800)
    assert on_new(stage) == ["gpu-1", "gpu-4"]
    assert (await explanation_of(stage, "gpu-5")).remedies[0].commands == ("gpuward approve --driver b",)
    told = await approve(stage, driver="b")
    assert told[0].startswith("NVIDIADriver b: approved of wave canary")
    await stage.until(lambda: on_new(stage) == ["gpu-1", "gpu-4", "gpu-5", "gpu-6"] and stage.state("gpu-6") == State.DONE)
    await stage.rest(600)
    assert on_new(stage) == ["gpu-1", "gpu-4", "gpu-5", "gpu-6"]
    lines = await approve(stage)
    assert any(line.startswith("NVIDIADriver a: approved of wave canary") for line in lines)
    assert any(line.startswith("NVIDIADriver b: there is nothing to approve") for line in lines)
    await stage.until(lambda: len(on_new(stage)) == 6)


@on_stage(gpu_nodes=6, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 1})
async def test_explain_approves_on_paper_of_all_drivers_that_the_command_approves_of(stage: Stage) -> None:
    """Nodes of two operating systems have a DaemonSet each: those of the one are not tried without those of the other."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.user.create(resources.NVIDIA_DRIVERS, nvidia_driver(
        "default", {"maxUnavailable": 1, "maxParallelUpgrades": 1}, default=True))
    await stage.installed()
    assert len({pod["metadata"]["labels"]["app"] for pod in driver_pods(stage)}) == 2
    await apply(stage, waves=[{"name": "canary", "nodeSelector": {"pool": "none"}, "approval": "Required"}])
    await stage.rest(5)
    await set_driver(stage, "default", {"version": NEW})
    await stage.rest(10)
    await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"ApprovalRequired"})
    told = {node: next(iter((await explanation_of(stage, node)).remedies)).then for node in sorted(stage.states())}
    assert sum(then == "this node starts at once" for then in told.values()) == 1
    await approve(stage)
    await stage.until(lambda: any(state in IN_PROGRESS for state in stage.states().values()))
    started = [node for node, state in stage.states().items() if state in IN_PROGRESS]
    assert [told[node] for node in started] == ["this node starts at once"]


@pytest.mark.parametrize("behaviour", ["Skip", "Quarantine"])
@pytest.mark.parametrize("skipped", [False, True])
@MODES
def test_no_node_follows_a_canary_that_was_given_up_until_somebody_says_so(mode: str, skipped: bool, behaviour: str) -> None:
    """Its driver was not touched, so nobody has seen the new one run."""
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await apply(stage, waves=[{**CANARY, "soak": "24h"}], undrainable={"behaviour": behaviour, "after": "1m"})
        stage.run_pod("stuck", "gpu-1", owned=True)
        kept = {"metadata": {"finalizers": ["example.com/keep"]}}
        await stage.user.patch_merge(resources.PODS, "stuck", kept, WORKLOAD_NAMESPACE)
        await stage.rest(30)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-1") in ("Undrainable", "Quarantined"))
        await stage.rest(7200)
        assert (stage.hold("gpu-2"), stage.hold("gpu-3"), on_new(stage, old)) == ("WaveNotDone", "WaveNotDone", [])
        assert sentence(stage.operator.plan.holds["gpu-2"]) == "waits for wave canary: 0 of 1 nodes done (not yet: gpu-1)"
        offered = [each for remedy in (await explanation_of(stage, "gpu-2")).remedies for each in remedy.commands]
        assert any(each.startswith("gpuward promote") for each in offered)
        if not skipped:
            await promote(stage)
            await stage.until(lambda: on_new(stage, old) == ["gpu-2", "gpu-3"], within=3600)
            return
        await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
        await stage.until(lambda: stage.hold("gpu-3") == "WaveSoaking", within=3600)
        assert on_new(stage, old) == ["gpu-2"], "another node is the canary"

    scenario()


@pytest.mark.parametrize("key", ["pool", names.GPU_PRODUCT])
@MODES
def test_a_canary_stays_in_its_wave_when_its_label_goes(mode: str, key: str) -> None:
    """As those of GPU feature discovery go with the driver, and come back some time after it."""
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=3)
        (old,) = stage.drivers()
        for node in stage.states():
            await stage.label(node, key, "canary" if node == "gpu-1" else "other")
        await apply(stage, waves=[{"name": "canary", "nodeSelector": {key: "canary"}, "soak": "30m"}])
        await stage.rest(5)
        stage.sandbox.faults.add(fault := Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1"))
        await ask(stage, mode)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
        await stage.label("gpu-1", key, None)
        await stage.restart_operator()
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=7200)
        assert stage.state("gpu-2") == stage.state("gpu-3") == State.UPGRADE_REQUIRED
        stage.sandbox.faults.clear(fault)
        await stage.until(lambda: stage.hold("gpu-2") == stage.hold("gpu-3") == "WaveSoaking", within=7200)
        assert on_new(stage, old) == ["gpu-1"]
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=7200)

    scenario()


@on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
async def test_a_wave_is_promoted_that_nodes_wait_for_and_no_other(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{**CANARY, "soak": "1h"}, {"name": "second", "nodes": 1, "soak": "1h"}])
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
    before = words_on(stage)
    assert (await promote(stage, wave="second"))[0].endswith(
        "there is nothing to promote from wave second, as nodes wait for wave canary: nothing is written")
    assert words_on(stage) == before
    await promote(stage, wave="canary")
    await stage.until(lambda: on_new(stage) == ["gpu-1", "gpu-2"] and stage.hold("gpu-3") == "WaveSoaking")
    assert "as nodes wait for wave second" in (await promote(stage, wave="canary"))[0], "said twice it lets no further wave go"
    await stage.rest(60)
    assert on_new(stage) == ["gpu-1", "gpu-2"]


@on_stage(gpu_nodes=3)
async def test_a_node_without_its_driver_pod_that_waits_for_a_wave_may_be_upgraded_before_its_turn(stage: Stage) -> None:
    await stage.installed()
    pod = stage.run_pod("training", "gpu-3", owned=True)
    stage.sandbox.apply({**pod, "spec": {**pod["spec"], "tolerations": [{"operator": "Exists"}]}})
    await apply(stage, waves=[{"name": "canary", "nodes": 1, "soak": "24h"}])
    await stage.rest(10)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.hold("gpu-3") == "WaveSoaking", within=3600)
    taint = {"key": "maint", "effect": "NoExecute"}
    await stage.user.patch_merge(resources.NODES, "gpu-3", {"spec": {"taints": [taint]}})
    await stage.rest(120)
    await stage.user.patch_merge(resources.NODES, "gpu-3", {"spec": {"taints": None}})
    await stage.rest(120)
    assert len(driver_pods(stage)) == 2, "none is made on gpu-3"
    remedy = (await explanation_of(stage, "gpu-3")).remedies[0]
    assert remedy.do == "upgrade this node before its turn: no driver pod serves its GPUs until then"
    for command in remedy.commands:
        await obey(stage, command)
    await stage.until(lambda: stage.driver("gpu-3") == NEW and stage.state("gpu-3") == State.DONE, within=900)
    assert stage.driver("gpu-2") == OLD
    assert [one.do for one in (await explanation_of(stage, "gpu-2")).remedies if "before its turn" in one.do] == []


@pytest.mark.parametrize(("mode", "record"), [
    (COMPILED, None), (COMPILED, "dated back"), (PRECOMPILED, '{"state": "upgrade-done", "since": 5}'),
    (NVIDIADRIVER, "no label either")])
def test_no_soak_ends_as_the_record_of_the_canary_is_deleted_garbled_or_dated_back(mode: str, record: str | None) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode, out=3)
        (old,) = stage.drivers()
        await apply(stage, waves=[{**CANARY, "soak": "30m"}])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking")
        meta: dict[str, Any] = {"annotations": {names.UPGRADE_RECORD: record}}
        if record == "dated back":
            known = json.loads(stage.node("gpu-1")["metadata"]["annotations"][names.UPGRADE_RECORD])
            meta["annotations"][names.UPGRADE_RECORD] = json.dumps({**known, "since": "0001-01-01T00:00:00Z"})
        elif record == "no label either":
            meta = {"annotations": {names.UPGRADE_RECORD: None}, "labels": {names.UPGRADE_STATE: None}}
        await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": meta})
        await stage.rest(1500)
        assert on_new(stage, old) == ["gpu-1"]
        assert (stage.hold("gpu-2"), stage.cordons()) == ("WaveSoaking", [])
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3000)

    scenario()
