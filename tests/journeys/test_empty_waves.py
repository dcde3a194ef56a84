"""A wave whose nodes are all deleted after they began: judged from the machines, nobody follows before somebody says so."""

from __future__ import annotations

import json

import pytest

from gpuward import names
from gpuward.cli.waiting import stopped
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.kernels import runs_kernel
from tests.journeys.looking import condition_of, explanation_of, looking
from tests.journeys.stage import Proceed, Stage, on_stage
from tests.journeys.test_removed import COMPILED, MODES, PRECOMPILED, driver_sets, installed
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_status_screen import shown
from tests.journeys.test_waves import ALL_AT_ONCE, approve, on_new, promote
from tests.journeys.test_windows import ask

POOL = ("example.com/pool", "canary")
CANARY = {"name": "canary", "nodeSelector": dict([POOL]), "soak": "1h"}


async def begun(stage: Stage, mode: str) -> str:
    """Let the only node of the canary begin, and return the old driver."""
    await installed(stage, mode)
    (old,) = stage.drivers()
    await stage.label("gpu-1", *POOL)
    await apply(stage, waves=[CANARY])
    await stage.rest(5)
    await ask(stage, mode)
    return old


async def emptied(stage: Stage, mode: str) -> str:
    """Take the only node of the canary away while it soaks, and return the old driver."""
    old = await begun(stage, mode)
    await stage.until(lambda: stage.driver("gpu-1") != old and stage.hold("gpu-2") == "WaveSoaking", within=600)
    stage.sandbox.remove_node("gpu-1")
    await stage.until(lambda: stage.hold("gpu-2") == "WaveEmpty", within=120)
    return old


@pytest.mark.parametrize("when", ["under way", "soaks"])
@MODES
def test_nobody_follows_a_canary_that_was_deleted_until_somebody_says_so(mode: str, when: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        old = await begun(stage, mode)
        held = "WaveSoaking" if when == "soaks" else "WaveNotDone"
        await stage.until(lambda: stage.driver("gpu-1") != old and stage.hold("gpu-2") == held, within=600)
        stage.sandbox.remove_node("gpu-1")
        await stage.rest(7200)
        assert (stage.hold("gpu-2"), on_new(stage, old)) == ("WaveEmpty", [])
        told = sentence(stage.operator.plan.holds["gpu-2"])
        assert told.startswith("no later wave starts: wave canary had begun, and has no node any more; label another "
                               "one example.com/pool=canary, or `gpuward promote")
        await stage.restart_operator()
        await stage.rest(600)
        assert on_new(stage, old) == [], "another operator knows it, too"
        explained = await explanation_of(stage, "gpu-2")
        assert explained.remedies[0].commands[0].startswith("gpuward promote")
        assert explained.remedies[0].then == "this node starts at once"
        async with looking(stage) as picture:
            assert "canary" in stopped(picture)
        screen = "\n".join(await shown(stage))
        assert "the rollout has stopped: wave canary has no node any more" in screen
        assert "canary: 0 of 0 done, has no node any more" in screen
        first, _ = await promote(stage)
        assert "promoted from wave canary, although it has no node any more, by sandbox-admin at " in first
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        await stage.rest(60)
        assert begun_waves(stage) == [], "what is over is not remembered"

    scenario()


@MODES
def test_who_promoted_before_a_requested_canary_was_lost_did_not_know_of_that(mode: str) -> None:
    @on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await stage.label("gpu-1", "example.com/pool", "first")
        await stage.label("gpu-2", *POOL)
        first = {"name": "first", "nodeSelector": {"example.com/pool": "first"}, "soak": "1h"}
        await apply(stage, waves=[first, CANARY])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: stage.hold("gpu-3") == "WaveSoaking", within=600)
        await stage.user.patch_merge(resources.NODES, "gpu-2", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
        await stage.until(lambda: stage.state("gpu-2") == State.POD_RESTART_REQUIRED, within=600)
        await promote(stage)
        stage.sandbox.remove_node("gpu-2")
        await stage.until(lambda: stage.hold("gpu-3") == "WaveEmpty", within=120)
        await stage.rest(1200)
        await stage.restart_operator()
        await stage.rest(7200)
        assert (stage.hold("gpu-3"), on_new(stage, old)) == ("WaveEmpty", ["gpu-1"])
        told, _ = await promote(stage)
        assert "promoted from wave canary, although it has no node any more" in told
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)

    scenario()


@pytest.mark.parametrize("ends", [False, True])
@MODES
def test_a_note_of_waves_that_may_not_be_written_is_told_as_long_as_it_is_to_be_written(mode: str, ends: bool) -> None:
    def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "PATCH" and names.BEGUN_WAVES in (request.body or b"").decode():
            return refusal(Forbidden("a webhook wants no such annotation"))
        return proceed()

    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        stage.transport.interfere = refuse
        await stage.label("gpu-1", *POOL)
        await apply(stage, waves=[CANARY])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: stage.driver("gpu-1") != old and stage.hold("gpu-2") == "WaveSoaking", within=600)
        await stage.rest(120)
        told = f"how its waves stand cannot be noted on {'NVIDIADriver' if mode == 'NVIDIADriver' else 'ClusterPolicy'} "
        _, _, message = condition_of(stage)
        assert told in message
        assert message.endswith("is not remembered: a webhook wants no such annotation")
        screen = " ".join(" ".join(await shown(stage)).split())
        assert "the operator says: WaveSoaking:" in screen
        assert told in screen
        if ends:
            await edit(stage, waves=None)
        else:
            stage.transport.interfere = lambda _, proceed: proceed()
        await stage.until(lambda: told not in condition_of(stage)[2], within=300)

    scenario()


def begun_waves(stage: Stage) -> list[str]:
    objects = [*stage.sandbox.store.list("clusterpolicies.nvidia.com"), *stage.sandbox.store.list("nvidiadrivers.nvidia.com")]
    return [labels for one in objects for labels in json.loads(
        (one["metadata"].get("annotations") or {}).get(names.BEGUN_WAVES, "{}")).get("began", ())]


@on_stage(gpu_nodes=2, upgrade=ALL_AT_ONCE)
async def test_who_approves_of_a_wave_without_a_node_is_told_what_helps(stage: Stage) -> None:
    await begun(stage, COMPILED)
    await edit(stage, waves=[{**CANARY, "approval": "Required"}])
    await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking", within=600)
    stage.sandbox.remove_node("gpu-1")
    await stage.until(lambda: stage.hold("gpu-2") == "WaveEmpty", within=120)
    (told,) = await approve(stage)
    assert "wave canary has no node any more: label another one, or go on with `gpuward promote`: nothing is written" in told


@MODES
def test_another_node_with_the_labels_goes_first(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        old = await begun(stage, mode)
        await stage.until(lambda: stage.hold("gpu-2") == "WaveSoaking", within=600)
        stage.sandbox.remove_node("gpu-1")
        await stage.until(lambda: stage.hold("gpu-2") == "WaveEmpty", within=120)
        await stage.label("gpu-2", *POOL)
        await stage.until(lambda: on_new(stage, old) == ["gpu-2"] and stage.hold("gpu-3") == "WaveSoaking", within=600)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=7200)

    scenario()


@MODES
def test_a_wave_that_never_had_a_node_and_one_that_is_over_hold_nobody(mode: str) -> None:
    @on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": "100%"})
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await stage.label("gpu-1", *POOL)
        await apply(stage, waves=[{"name": "test", "nodeSelector": {"example.com/pool": "test"}}, {**CANARY, "soak": "1m"}])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: len(on_new(stage, old)) == 2, within=900)
        stage.sandbox.remove_node("gpu-1")
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)

    scenario()


@pytest.mark.parametrize("text", [
    "{", "[]", '{"targets":["x"],"began":{"example.com/pool=canary":"yesterday"}}', '{"began":' + "[" * 50_000,
    pytest.param('{"targets":["x"],"began":{"example.com/pool=canary":"2026-01-01T00:00:00Z"}}', id="of another driver"),
])
def test_what_is_not_about_this_driver_holds_nobody(text: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        (old,) = stage.drivers()
        await apply(stage, waves=[CANARY])
        note = {"metadata": {"annotations": {names.BEGUN_WAVES: text}}}
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", note)
        await ask(stage, COMPILED)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)

    scenario()


@MODES
def test_a_second_wave_with_the_same_labels_that_never_had_a_node_holds_nobody(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        await installed(stage, mode)
        (old,) = stage.drivers()
        await stage.label("gpu-1", *POOL)
        await apply(stage, waves=[{**CANARY, "nodes": 1, "soak": "10m"}, {**CANARY, "name": "pool"}])
        await stage.rest(5)
        await ask(stage, mode)
        await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)
        await stage.rest(60)
        assert begun_waves(stage) == []

    scenario()


@on_stage(gpu_nodes=4, upgrade=ALL_AT_ONCE)
async def test_nobody_follows_though_a_node_starts_with_another_kernel(stage: Stage) -> None:
    old = await emptied(stage, PRECOMPILED)
    await runs_kernel(stage, "gpu-4", "5.15.0-999-generic")
    await stage.rest(7200)
    assert (stage.driver("gpu-2"), stage.driver("gpu-3"), stage.hold("gpu-2"), stage.cordons()) == (old, old, "WaveEmpty", [])
    await promote(stage)
    await stage.until(lambda: old not in stage.drivers() and stage.all_are(State.DONE), within=3600)


@MODES
def test_nobody_follows_though_the_daemonset_of_the_driver_is_made_anew(mode: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL_AT_ONCE)
    async def scenario(stage: Stage) -> None:
        old = await emptied(stage, mode)
        for name in driver_sets(stage):
            await stage.user.delete(resources.DAEMON_SETS, name, names.DEFAULT_NAMESPACE, propagation="Orphan")
        await stage.rest(7200)
        assert driver_sets(stage)
        assert (on_new(stage, old), stage.hold("gpu-2"), stage.cordons()) == ([], "WaveEmpty", [])

    scenario()
