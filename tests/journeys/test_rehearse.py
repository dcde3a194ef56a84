"""What `gpuward rehearse` says of a rollout, and what then happens in the cluster that was captured."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Coroutine
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpuward import names
from gpuward.cli.capture import captured, store
from gpuward.cli.leftout import whole_policies
from gpuward.cli.plan import lines
from gpuward.cli.rehearse import Options, rehearsed
from gpuward.cli.rehearsed import as_json, assumed_lines, show, summary
from gpuward.cli.timeline import timeline
from gpuward.cli.words import abort, approve
from gpuward.errors import InputError
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.model.waves import WavePhase
from gpuward.rehearse.assumptions import Assumptions, DrawnDelays
from gpuward.rehearse.captured import Captured, read_capture
from gpuward.rehearse.results import Phase, Rehearsal, Run
from gpuward.report.when import When
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from kubesandbox.timeloop import run_virtual
from tests.cli.verbs import said as words_said
from tests.journeys.stage import NEW, OLD, Stage, gpu_template, on_stage, playing, policy
from tests.journeys.test_nvidiadriver import nvidia_driver, with_pools
from tests.journeys.test_plan import VERSIONS, change, lists_only, plan_of, started
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_withheld import set_driver

SPACE = names.DEFAULT_NAMESPACE
EXACT = Assumptions(driver=120.0, validation=20.0, eviction=10.0, start=5.0, job=600.0, spread=1.0)
"""Durations that nothing is left to chance in."""
MARK = "hush-hush"


async def capture(stage: Stage) -> Captured:
    return await captured(lists_only(stage), SPACE)


def at_pace(nodes: int = 3, **options: Any) -> Stage:
    """Return a stage on which things take as long as is assumed."""
    return Stage(nodes, delays=DrawnDelays(EXACT, 0), **options)


def of(play: Callable[[], Coroutine[Any, Any, Captured]], version: str = NEW, **options: Any) -> Rehearsal:
    """Return the rehearsal of what was captured on a stage; a loop cannot run within another one."""
    found = run_virtual(play)
    return rehearsed(found, Options(version=version, **{"assumed": EXACT, "runs": 1, "time": 0.0, **options}))


def held(run: Run) -> dict[str, str]:
    return {node.name: node.reason for node in run.left}


async def busy(stage: Stage) -> None:
    """Run pods of a Deployment that may go anywhere, some that stay with their node, and one that may not go."""
    await stage.deploy("lone", 3)
    await stage.deploy("tied", 2, node="gpu-1")
    await stage.deploy("stuck", 1, node="gpu-4", max_unavailable=0)
    await stage.rest(60)


def test_a_rehearsal_agrees_with_what_then_happens() -> None:
    happened: dict[str, Any] = {}

    async def play() -> Captured:
        async with playing(at_pace(4, upgrade={"maxParallelUpgrades": 1})) as stage:
            await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE), 3600)
            await busy(stage)
            found = await capture(stage)
            stage.history.clear()
            begun = stage.clock.now()
            await stage.upgrade_to(NEW)
            await stage.until(lambda: list(stage.states().values()).count(str(State.DONE)) == 3 and len(started(stage)) == 3
                              and stage.cordons() == [], 7200)
            done = max(moment.at for moment in stage.history if moment.state is State.DONE)
            happened.update(order=started(stage), lasted=done - begun, hold=stage.hold("gpu-4"),
                            evicted=sum(key.resource == "pods/eviction" and key.status == 201
                                        for key in stage.client.stats.requests for _ in range(stage.client.stats.requests[key])))
            return found

    run = of(play).first
    assert list(run.order) == happened["order"]
    assert held(run) == {"gpu-4": happened["hold"]} == {"gpu-4": "BudgetBlocks"}
    done = max(node.done for node in run.nodes if node.done)
    assert done == pytest.approx(happened["lasted"], rel=0.1)
    assert run.evicted == happened["evicted"]
    assert run.most_out == 1
    out = sum(node.out * node.gpus for node in run.nodes) / 3600
    assert run.hours_out == pytest.approx(out)
    assert 0 < run.hours_waiting < run.hours_out
    waited = [one.whom for node in run.nodes if node.name == "gpu-4" for one in node.waited if one.reason != "TemplateSettling"]
    assert waited == ["budget ml/stuck"]
    assert any("BudgetBlocks" in str(node.reason) and node.remedies for node in run.left), "what explain knows"


async def installed(stage: Stage) -> None:
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE), 7200)


async def plain(stage: Stage) -> None:
    await installed(stage)


async def precompiled(stage: Stage) -> None:
    await installed(stage)
    await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.rest(60)
    await installed(stage)


async def pools(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a"), nvidia_driver("b", {"maxParallelUpgrades": 2, "maxUnavailable": "100%"}))
    await installed(stage)


async def secretive(stage: Stage) -> None:
    """Hide marks wherever people put secrets."""
    await installed(stage)
    variable = [{"name": "PROXY_SETTINGS", "value": MARK}]
    await set_driver(stage, {"env": variable})
    await stage.patch_policy("dcgmExporter/args", ["--flag", MARK])
    await stage.rest(120)
    await installed(stage)
    template = gpu_template("private")
    template["metadata"]["annotations"] = {"example.com/note": MARK}
    template["spec"]["containers"][0] |= {"env": variable, "args": [MARK], "command": ["sh", "-c", MARK], "image": f"{MARK}:1"}
    stage.sandbox.apply(deployment("private", WORKLOAD_NAMESPACE, 2, template))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods("private"))) == 2)


MODES = {"clusterpolicy": (plain, NEW), "precompiled": (precompiled, "590"), "nvidiadrivers": (pools, NEW),
         "secrets": (secretive, NEW)}


@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode_nothing_happens_unless_asked_and_then_every_node_is_done(mode: str) -> None:
    prepare, version = MODES[mode]
    nodes = 6 if mode == "nvidiadrivers" else 3

    async def play() -> Captured:
        async with playing(at_pace(nodes)) as stage:
            await prepare(stage)
            return await capture(stage)

    found = run_virtual(play)
    assert MARK not in json.dumps(found.objects)
    still = rehearsed(found, Options(assumed=EXACT, runs=3, time=0.0))
    assert not still.first.changes
    assert (len(still.runs), still.first.evicted, still.first.hours_out) == (1, 0, 0.0)
    assert "nothing would change" in list(summary(still, found.manifest))[1]
    run = rehearsed(found, Options(version=version, assumed=EXACT, runs=1, time=0.0)).first
    assert held(run) == {}
    assert len(run.order) == nodes
    assert run.most_out == (3 if mode == "nvidiadrivers" else 1)


@pytest.mark.parametrize("mode", VERSIONS)
def test_going_back_to_an_earlier_version_takes_only_the_nodes_that_have_left_it(mode: str) -> None:
    prepare, _ = MODES[mode]
    old, new = VERSIONS[mode]
    happened: dict[str, list[str]] = {}

    async def play() -> Captured:
        async with playing(at_pace(6 if mode == "nvidiadrivers" else 3, upgrade={"maxUnavailable": 1})) as stage:
            await prepare(stage)
            await set_variable(stage, mode)
            await stage.rest(120)
            await installed(stage)
            loaded = loaded_at(stage)
            await change(stage, mode, new)
            await stage.until(lambda: stage.state("gpu-1") == State.DONE and loaded_at(stage)["gpu-1"] > loaded["gpu-1"], 3600)
            found = await capture(stage)
            planned = await plan_of(stage, old)
            happened["planned"] = sorted(one.node for one in planned.nodes if one.when is not When.NEVER)
            loaded = loaded_at(stage)
            await change(stage, mode, old)
            await stage.rest(120)
            await stage.until(lambda: stage.all_are(State.DONE) and stage.cordons() == [], 7200)
            happened["touched"] = sorted(node for node, at in loaded_at(stage).items() if at != loaded[node])
            happened["all"] = sorted(loaded)
            return found

    run = of(play, version=old).first
    assert held(run) == {}
    taken = sorted(run.order)
    assert taken == happened["planned"] != happened["all"]
    assert {"gpu-1"} <= set(happened["touched"]) <= set(taken), "a node that was just emptied may have its old driver yet"


async def set_variable(stage: Stage, mode: str) -> None:
    """Give the drivers a variable, whose value no capture has."""
    variable = {"env": [{"name": "PROXY_SETTINGS", "value": MARK}]}
    for name in "ab" if mode == "nvidiadrivers" else "":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, name, {"spec": variable})
    if mode != "nvidiadrivers":
        await set_driver(stage, variable)


def loaded_at(stage: Stage) -> dict[str, float]:
    """Return since when each machine has had its driver."""
    return {node: stage.sandbox.machine(node).loaded_at for node in stage.states()}


@pytest.fixture(scope="module")
def crowd() -> Captured:
    """Return three nodes, on one of which a budget lets nobody go."""
    async def play() -> Captured:
        async with playing(at_pace(3)) as stage:
            await installed(stage)
            await stage.deploy("stuck", 1, node="gpu-3", max_unavailable=0)
            return await capture(stage)

    return run_virtual(play)


@pytest.mark.parametrize("paused", [False, True])
def test_nothing_happens_to_a_driver_that_stays(paused: bool) -> None:
    async def play() -> Captured:
        async with playing(at_pace(2)) as stage:
            await installed(stage)
            await stage.deploy("stuck", 1, node="gpu-2", max_unavailable=0)
            await stage.patch_policy("driver/upgradePolicy/autoUpgrade", not paused)
            await stage.rest(10)
            return await capture(stage)

    run = of(play).first
    stays = [node for node in run.nodes if node.started is None]
    assert [node.name for node in stays] == (["gpu-1", "gpu-2"] if paused else ["gpu-2"])
    assert [span for node in stays for span in node.spans if span.phase is Phase.DRIVER] == []
    assert [node.done for node in stays if node.done is not None] == []


def test_what_would_shorten_it_is_rehearsed_too(crowd: Captured) -> None:
    found = rehearsed(crowd, Options(version=NEW, assumed=EXACT, runs=2, time=120.0))
    assert held(found.first) == {"gpu-3": "BudgetBlocks"}
    assert {one.do.partition(":")[0]: one.freed for one in found.trials} == {
        "twice as many nodes at once": (), "one more pod may be away under disruption budget ml/stuck": ("gpu-3",)}
    told = as_json(found, crowd.manifest, EXACT)
    assert told["heldUpBy"] == [{"reason": "BudgetBlocks", "whom": "budget ml/stuck", "nodes": 1,
                                 "seconds": pytest.approx(found.first.lasted, abs=5)}]
    assert (told["runs"], told["sameOrder"], told["changes"]) == (2, 2, True)


def test_drawn_durations_differ_by_seed_and_are_the_same_again(crowd: Captured) -> None:
    options = Options(version=NEW, assumed=Assumptions(), runs=3, time=600.0)
    once, again = rehearsed(crowd, options), rehearsed(crowd, options)
    assert [run.lasted for run in once.runs] == [run.lasted for run in again.runs]
    assert len({run.lasted for run in once.runs}) == 3


def test_windows_and_policies_of_files_count(crowd: Captured, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    body = policy(upgrade={"maxParallelUpgrades": 2, "maxUnavailable": "100%"})
    body["spec"]["driver"]["version"] = NEW
    night = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
             "spec": {"windows": [{"schedule": "0 3 * * *", "duration": "1h"}]}}
    file.write_text(yaml.safe_dump_all([body, night]))
    run = rehearsed(crowd, Options(policies=(str(file),), assumed=EXACT, runs=1, time=0.0)).first
    begins = [crowd.manifest.at + node.started for node in run.nodes if node.started is not None]
    assert [10800.0 <= at % 86400 < 14400.0 for at in begins] == [True, True]
    assert run.most_out == 2
    body["spec"]["driver"]["version"] = 7
    file.write_text(yaml.safe_dump(body))
    with pytest.raises(InputError, match="--policy"):
        rehearsed(crowd, Options(policies=(str(file),), assumed=EXACT, runs=1, time=0.0))
    file.write_text(yaml.safe_dump({**night, "spec": {"finishBy": "soon"}}))
    with pytest.raises(InputError, match=r"RolloutPolicy default: spec\.finishBy: 'soon' cannot be used"):
        rehearsed(crowd, Options(policies=(str(file),), assumed=EXACT, runs=1, time=0.0))


def test_a_window_that_opens_at_the_moment_of_a_look_is_not_the_end(crowd: Captured, tmp_path: Path) -> None:
    """It is looked every 10 s whether it is over, and a capture may have been made so many seconds after a minute."""
    night = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
             "spec": {"windows": [{"schedule": "0 3 * * *", "duration": "1h"}]}}
    file = tmp_path / "night.yaml"
    file.write_text(yaml.safe_dump(night))
    at = ceil(crowd.manifest.at / 10) * 10.0
    aligned = msgspec.structs.replace(crowd, manifest=msgspec.structs.replace(crowd.manifest, at=at))
    run = rehearsed(aligned, Options(policies=(str(file),), version=NEW, assumed=EXACT, runs=1, time=0.0)).first
    begins = [at + node.started for node in run.nodes if node.started is not None]
    assert [10800.0 <= each % 86400 < 14400.0 for each in begins] == [True, True]


def owned(owner: dict[str, Any], pod: dict[str, Any]) -> None:
    pod["metadata"]["ownerReferences"] = [owner]


def test_pods_of_controllers_that_are_not_played_are_put_back_and_jobs_are_waited_for() -> None:
    async def play() -> Captured:
        async with playing(at_pace(2, upgrade={"waitForCompletion": {"podSelector": "app=job"}})) as stage:
            await installed(stage)
            for kind in ("StatefulSet", "PyTorchJob"):
                name = f"{kind.lower()}-0"
                stage.run_pod(name, "gpu-1")
                owner = {"apiVersion": "example.com/v1", "kind": kind, "name": kind.lower(), "uid": kind, "controller": True}
                stage.sandbox.store.modify("pods", WORKLOAD_NAMESPACE, name, partial(owned, owner))
            template = gpu_template("job")
            template["spec"] |= {"restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": "gpu-2"}}
            job = {"template": template, "activeDeadlineSeconds": 900}
            stage.sandbox.apply({"apiVersion": "batch/v1", "kind": "Job", "spec": job,
                                 "metadata": {"name": "job", "namespace": WORKLOAD_NAMESPACE}})
            await stage.until(lambda: len(stage.workload_pods()) == 3 and all(map(is_ready, stage.workload_pods())))
            return await capture(stage)

    run = of(play).first
    assert held(run) == {}
    assert (run.evicted, run.not_back) == (2, 0)
    job = next(node for node in run.nodes if node.name == "gpu-2")
    assert [one.seconds for one in job.waited if one.reason == "JobsRunning"] == [pytest.approx(900 - (job.started or 0), abs=60)]


@on_stage(2)
async def test_a_capture_is_what_was_written(stage: Stage) -> None:
    await installed(stage)
    found = await capture(stage)
    assert found.manifest.in_step
    assert {node["metadata"]["name"] for node in found.of("nodes")} == {"cpu-1", "gpu-1", "gpu-2"}
    assert stage.drivers() == [OLD]


def test_an_archive_is_read_as_it_was_written_and_garbage_is_refused(crowd: Captured, tmp_path: Path) -> None:
    file, garbage = tmp_path / "capture.tgz", tmp_path / "garbage.tgz"
    store(crowd, file)
    assert read_capture(file) == crowd
    assert file.stat().st_mode & 0o077 == 0
    garbage.write_bytes(b"\x1f\x8bnothing")
    for wrong in (garbage, tmp_path / "absent"):
        with pytest.raises(InputError, match="--from"):
            read_capture(wrong)
    with pytest.raises(InputError, match="it is there already"):
        store(crowd, file)


def test_the_timeline_is_one_file_that_loads_nothing(crowd: Captured) -> None:
    run = rehearsed(crowd, Options(version=NEW, assumed=EXACT, runs=1, time=0.0)).first
    text = "\n".join(timeline(run, crowd.manifest.at))
    root = ElementTree.fromstring(text)
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert {title.partition(":")[0] for title in titles} == {"gpu-1", "gpu-2", "gpu-3"}
    assert any("driver 2m" in title for title in titles)
    assert text.count("http") == 1, "the name space alone"
    assert not [element for element in root.iter() if "href" in "".join(element.attrib)]


@on_stage(1)
async def test_who_may_only_get_and_list_is_enough_and_nothing_else_is_sent(stage: Stage) -> None:
    await installed(stage)
    before = stage.sandbox.store.version
    found = await capture(stage)
    assert found.of(str(resources.NODES))
    assert stage.sandbox.store.version == before


def test_a_rollout_that_is_under_way_goes_on_from_where_it_is() -> None:
    async def play() -> Captured:
        async with playing(at_pace(3)) as stage:
            await installed(stage)
            await stage.deploy("tied", 1, node="gpu-3")
            await stage.upgrade_to(NEW)
            await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == NEW, 3600)
            await stage.until(lambda: stage.state("gpu-2") == State.POD_RESTART_REQUIRED)
            return await capture(stage)

    run = of(play, version="").first
    assert held(run) == {}
    assert [node.name for node in run.nodes if node.started is not None and node.out] == ["gpu-2", "gpu-3"]
    assert (run.evicted, run.most_out) == (1, 1)


WAVES = [{"name": "canary", "nodes": 1, "approval": "Required"},
         {"name": "second", "nodes": 1, "soak": "10m", "approval": "Required"}]


@pytest.mark.parametrize("mode", VERSIONS)
def test_a_file_that_says_what_the_policies_say_changes_nothing_though_a_capture_lacks_values(mode: str, tmp_path: Path) -> None:
    prepare, _ = MODES[mode]
    same, other = tmp_path / "same.yaml", tmp_path / "other.yaml"
    planned: list[bool] = []

    async def play() -> tuple[Captured, list[dict[str, Any]]]:
        async with playing(at_pace(6 if mode == "nvidiadrivers" else 2)) as stage:
            await prepare(stage)
            await set_variable(stage, mode)
            await stage.patch_policy("dcgmExporter/args", ["--flag", MARK])
            await stage.rest(120)
            await installed(stage)
            whole = await whole_policies(lists_only(stage))
            text = yaml.safe_dump_all([{**obj, "metadata": {"name": obj["metadata"]["name"]}, "status": None} for obj in whole])
            same.write_text(text)
            other.write_text(text.replace(f"value: {MARK}", "value: another"))
            for file in (same, other):
                planned.append(any(one.when is not When.NEVER for one in (await plan_of(stage, "", file)).nodes))
            return await capture(stage), whole

    found, whole = run_virtual(play)
    assert planned == [False, True]
    for file, changes in ((same, False), (other, True)):
        options = Options(policies=(str(file),), assumed=EXACT, runs=1, time=0.0)
        live = rehearsed(found, options, whole)
        assert live.first.changes == changes, "as gpuward plan says"
        assert not any("taken for those of the capture" in line for line in assumed_lines(live, EXACT))
    later = rehearsed(found, options)
    assert not later.first.changes
    assert any("taken for those of the capture" in line for line in assumed_lines(later, EXACT)), "nobody can tell"


@pytest.mark.parametrize("mode", VERSIONS)
def test_a_rehearsal_goes_on_where_waves_ask_for_approval_and_says_that_it_assumes_one(mode: str) -> None:
    prepare, version = MODES[mode]
    happened: dict[str, Any] = {}

    async def play() -> Captured:
        async with playing(at_pace(6, upgrade={"maxUnavailable": 1})) as stage:
            await prepare(stage)
            await apply(stage, waves=WAVES)
            await stage.rest(30)
            found = await capture(stage)
            stage.history.clear()
            begun, asked = stage.clock.now(), []
            await change(stage, mode, version)
            for _ in WAVES:
                await stage.until(lambda: len(waiting(stage)) == (2 if mode == "nvidiadrivers" else 1), 7200)
                asked.append(stage.clock.now() - begun)
                await words_said(approve(stage.user, SPACE, "", "", dry_run=False))
                await stage.rest(5)
            await stage.until(lambda: stage.all_are(State.DONE) and len(started(stage)) == 6, 7200)
            happened.update(order=started(stage), asked=asked, lasted=max(m.at for m in stage.history) - begun)
            return found

    def waiting(stage: Stage) -> list[str]:
        return [each.driver for each in stage.operator.plan.waves for wave in each.waves
                if each.targets and wave.phase is WavePhase.APPROVAL]

    captured_then = run_virtual(play)
    options = Options(version=version, assumed=EXACT, runs=1, time=0.0)
    found = rehearsed(captured_then, options)
    run = found.first
    assert held(run) == {}
    assert sorted(run.order) == sorted(happened["order"])
    assert run.lasted == pytest.approx(happened["lasted"], abs=120)
    drivers = ("a", "b") if mode == "nvidiadrivers" else ("",)
    assert sorted({(one.driver, one.wave) for one in run.approvals}) == [
        (driver, wave["name"]) for driver in drivers for wave in WAVES]
    assert max(one.asked for one in run.approvals) == pytest.approx(happened["asked"][-1], abs=60)
    told = list(assumed_lines(found, EXACT))
    assert sum("is approved of at once" in line for line in told) == len(run.approvals)
    assert any("wave canary" in line for line in told)

    patient = msgspec.structs.replace(EXACT, approval=7200.0)
    later = rehearsed(captured_then, msgspec.structs.replace(options, assumed=patient))
    assert held(later.first) == {}
    assert later.first.lasted == pytest.approx(run.lasted + 2 * 7200, abs=600)
    assert any("is approved of 2h" in line for line in assumed_lines(later, patient))
    told_json = as_json(later, captured_then.manifest, patient)["approvals"]
    assert all(one["given"] - one["asked"] == pytest.approx(7200, abs=30) for one in told_json)


@pytest.mark.parametrize("acknowledge", ["Optional", "Required"])
def test_a_rehearsal_waits_for_the_end_of_each_notice_and_answers_where_it_has_to(acknowledge: str) -> None:
    async def play() -> Captured:
        async with playing(at_pace(3, upgrade={"maxUnavailable": 1})) as stage:
            await stage.installed()
            for node in ("gpu-1", "gpu-2"):
                stage.run_pod(f"train-{node}", node, owned=True)
            await apply(stage, notice={"before": "30m", "acknowledge": acknowledge})
            await stage.rest(30)
            return await capture(stage)

    run = of(play).first
    assert held(run) == {}
    waited = {node.name: {one.reason: one.seconds for one in node.waited}.get("NoticeGiven", 0.0) for node in run.nodes}
    # The notice of the second node goes on beside the first, where that gives its place away until it is answered.
    assert waited == {"gpu-1": pytest.approx(1800, abs=30), "gpu-2": pytest.approx(1700, abs=130), "gpu-3": 0.0}
    assert run.evicted == 2


def test_a_rehearsal_takes_it_that_a_maintenance_operator_lets_nodes_go_on() -> None:
    async def play() -> Captured:
        async with playing(at_pace(2, upgrade={"maxUnavailable": 1})) as stage:
            await stage.installed()
            stage.run_pod("train", "gpu-1", owned=True)
            await apply(stage, interop={"nodeMaintenance": "Request"})
            await stage.rest(30)
            return await capture(stage)

    found = of(play)
    assert (held(found.first), found.first.evicted) == ({}, 1)
    assumed = "NodeMaintenances are installed, and the maintenance operator lets every node go on at once"
    assert any(assumed in line for line in assumed_lines(found, EXACT))


def test_a_rehearsal_takes_checks_of_waves_for_good_and_waits_for_their_time() -> None:
    check = {"name": "slo", "promql": {"server": "http://127.0.0.1:1", "query": "up", "failWhen": "> 0"}, "for": "1h"}

    async def play() -> Captured:
        async with playing(at_pace(3, upgrade={"maxUnavailable": 1})) as stage:
            await installed(stage)
            await apply(stage, waves=[{"name": "canary", "nodes": 1, "analysis": [check]}])
            await stage.rest(30)
            return await capture(stage)

    run = rehearsed(run_virtual(play), Options(version=NEW, assumed=EXACT, runs=1, time=0.0)).first
    assert held(run) == {}
    assert run.lasted >= 3600


def test_a_rollout_that_was_aborted_is_approved_of_by_nobody() -> None:
    async def play() -> Captured:
        async with playing(at_pace(3)) as stage:
            await plain(stage)
            await apply(stage, waves=WAVES)
            await stage.upgrade_to(NEW)
            await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired", 7200)
            await words_said(abort(stage.user, SPACE, "", dry_run=False))
            await stage.rest(30)
            return await capture(stage)

    run = rehearsed(run_virtual(play), Options(assumed=EXACT, runs=1, time=0.0)).first
    assert held(run) == {"gpu-2": "Aborted", "gpu-3": "Aborted"}
    assert run.approvals == ()
    assert not run.at_horizon


async def without_policy(stage: Stage) -> None:
    await installed(stage)
    await stage.user.delete(resources.CLUSTER_POLICIES, "cluster-policy")
    await stage.rest(300)


async def switched_off(stage: Stage) -> None:
    await installed(stage)
    await set_driver(stage, {"enabled": False})
    await stage.until(lambda: not any(stage.states().values()), 7200)


async def without_gpus(stage: Stage) -> None:
    await stage.rest(300)


NOTHING = {"without_policy": (2, without_policy, "no ClusterPolicy: nothing is managed"),
           "switched_off": (2, switched_off, "ClusterPolicy cluster-policy: driver.enabled is false: no drivers are managed"),
           "without_gpus": (0, without_gpus, "found no NVIDIA GPU on any node")}


@pytest.mark.parametrize("case", NOTHING)
def test_where_no_node_has_a_driver_to_upgrade_it_says_so_at_once_and_why(case: str) -> None:
    nodes, prepare, why = NOTHING[case]
    planned: list[str] = []

    async def play() -> Captured:
        async with playing(at_pace(nodes)) as stage:
            await prepare(stage)
            planned.extend(lines(await plan_of(stage)))
            return await capture(stage)

    capture_of = run_virtual(play)
    found = rehearsed(capture_of, Options(assumed=EXACT, runs=3, time=60.0))
    (run,) = found.runs
    assert (run.lasted, run.at_horizon, run.changes) == (0.0, False, False)
    told = list(summary(found, capture_of.manifest))[1]
    assert told.startswith("there is nothing to do: ")
    assert why in told
    assert as_json(found, capture_of.manifest, EXACT)["nothingToDo"] == run.nothing
    assert planned[0] == f"There is nothing to do: {run.nothing}"


def test_a_first_driver_is_rehearsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy()))

    async def play() -> Captured:
        async with playing(at_pace(2)) as stage:
            await stage.user.delete(resources.CLUSTER_POLICIES, "cluster-policy")
            await stage.rest(300)
            return await capture(stage)

    capture_of = run_virtual(play)
    found = rehearsed(capture_of, Options(policies=(str(file),), assumed=EXACT, runs=1, time=0.0))
    assert [node.name for node in found.first.nodes if (node.done or 0.0) > EXACT.driver] == ["gpu-1", "gpu-2"]
    told = list(summary(found, capture_of.manifest))
    assert told[1].startswith("2 of 2 nodes have the driver that they should have in the end; that takes 2m"), told
    assert "at most 0 nodes are out of service" in told[2]
    assert as_json(found, capture_of.manifest, EXACT)["changes"] is True
    drawn = "".join(timeline(found.first, capture_of.manifest.at))
    assert [f"{name}: driver 2m" in drawn for name in ("gpu-1", "gpu-2")] == [True, True]
    show(found, capture_of.manifest, EXACT)
    printed = capsys.readouterr().out
    assert ("HELD UP BY" in printed, "gpu-1  -       2m" in printed) == (False, True), printed


def test_a_node_that_is_not_ready_stays_so_and_holds_no_other() -> None:
    async def play() -> Captured:
        async with playing(at_pace(3, upgrade={"maxUnavailable": 2})) as stage:
            await installed(stage)
            stage.sandbox.disconnect("gpu-2")
            await stage.rest(120)
            return await capture(stage)

    run = of(play).first
    assert held(run) == {"gpu-2": "NodeNotReady"}
    assert run.order == ("gpu-1", "gpu-3")
