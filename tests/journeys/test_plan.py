"""What `gpuward plan` says of a rollout, and what then happens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gpuward import names
from gpuward.cli.foresight import Foresight, Wanted, foresee
from gpuward.cli.overview import headline
from gpuward.cli.plan import as_json, lines
from gpuward.cli.status import Choice
from gpuward.cli.waiting import stopped
from gpuward.errors import Forbidden, InputError, MethodNotAllowed
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.kube.http.listing import ListingTransport
from gpuward.model.states import IN_PROGRESS, State
from gpuward.report.nodes import NodeReport
from gpuward.report.when import When
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready, is_terminating
from kubesandbox.timeloop import run_virtual
from tests.journeys.looking import explanation_of, looking, status_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, gpu_template, on_stage, playing, policy
from tests.journeys.test_nvidiadriver import nvidia_driver, with_pools
from tests.journeys.test_rolloutpolicy import apply, edit
from tests.journeys.test_windows import window
from tests.journeys.test_withheld import set_driver

SPACE = names.DEFAULT_NAMESPACE


def lists_only(stage: Stage) -> Client:
    """Return a client that may get and list, and nothing else; Secrets it may not even get."""
    transport = stage.sandbox.transport()

    def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
        watches = request.query.get("watch", "false") not in ("false", "0")
        assert request.method == "GET", f"{request.method} {request.path}"
        assert not watches, f"{request.path} is watched"
        return refusal(Forbidden("secrets is forbidden")) if "/secrets" in request.path else proceed()

    transport.interfere = refuse
    return Client(ListingTransport(transport))


async def plan_of(stage: Stage, version: str = "", *files: Path) -> Foresight:
    return await foresee(lists_only(stage), Wanted(tuple(map(str, files)), version), SPACE)


async def held(stage: Stage) -> list[NodeReport]:
    """Return the nodes that `gpuward status --held` shows."""
    async with looking(stage) as picture:
        return Choice(held=True).of(picture)


def order(found: Foresight) -> list[str]:
    """Return the nodes that have a turn, in its order."""
    return [one.node for one in found.nodes if one.place]


def started(stage: Stage) -> list[str]:
    """Return the nodes in the order in which they began, those of one moment by name."""
    seen = dict.fromkeys(moment.node for moment in stage.history if moment.state in IN_PROGRESS)
    return list(seen)


@on_stage(3)
async def test_nothing_is_foreseen_where_nothing_changes(stage: Stage) -> None:
    await stage.installed()
    found = await plan_of(stage)
    assert [one.when for one in found.nodes] == [When.NEVER] * 3
    told = as_json(found)
    assert (told["changes"], told["writes"], told["counts"]["nothing"]) == (False, [], 3)


@on_stage(4, upgrade={"maxParallelUpgrades": 1})
async def test_the_order_is_told_before_the_version_is_set_and_nothing_is_written(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("busy", 2, node="gpu-1")
    await stage.deploy("lone", 1, node="gpu-3")
    await stage.deploy("stuck", 1, node="gpu-4", max_unavailable=0)
    before = {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in stage.gpu_node_objects()}
    found = await plan_of(stage, NEW)
    assert [(one.node, one.when, one.pods) for one in found.nodes] == [
        ("gpu-2", When.NOW, 0), ("gpu-3", When.NEXT, 1), ("gpu-1", When.NEXT, 2), ("gpu-4", When.HELD, 1)]
    held = found.nodes[-1]
    assert (held.reason, held.place, held.budget) == ("BudgetBlocks", 0, "ml/stuck")
    assert held.pod.startswith("ml/stuck-")
    assert found.nodes[1].behind == ("gpu-2",)
    assert {one.driver for one in found.nodes} == {f"{OLD} -> {NEW}"}
    assert [one.name for one in found.differences] == [f"DaemonSet {SPACE}/nvidia-driver-daemonset"]
    assert next(lines(found)) == "4 nodes: 1 starts now, 2 have their turn later, 1 is held."
    assert before == {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in stage.gpu_node_objects()}
    await stage.upgrade_to(NEW)
    await stage.until(lambda: [stage.state(f"gpu-{n}") for n in (1, 2, 3)] == [State.DONE] * 3 and len(stage.drivers()) == 2)
    await stage.rest(60)
    assert started(stage) == order(found)
    assert stage.hold("gpu-4") == held.reason


def body(**upgrade: Any) -> dict[str, Any]:
    found = policy(upgrade=upgrade)
    found["spec"]["driver"]["version"] = NEW
    return found


@on_stage(3)
async def test_files_with_policies_are_taken_for_those_in_the_cluster(stage: Stage) -> None:
    await stage.installed()
    with_file = Path("/nowhere")
    with pytest.raises(InputError, match="name a file that can be read"):
        await plan_of(stage, "", with_file)
    with pytest.raises(MethodNotAllowed, match="was not sent"):
        await lists_only(stage).patch_merge(resources.NODES, "gpu-1", {"metadata": {"labels": {"a": "b"}}})


@on_stage(1)
async def test_a_version_that_no_nvidiadriver_could_have_is_refused_with_who_leaves_drivers_to_them(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    with pytest.raises(InputError, match="cluster-policy leaves drivers to NVIDIADrivers, and there is none"):
        await plan_of(stage, NEW)


def test_a_rollout_policy_of_a_file_is_refused_by_its_field_and_not_by_a_condition(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "r"},
                                    "spec": {"finishBy": "soon", "retrys": 1}}))

    @on_stage(1)
    async def play(stage: Stage) -> None:
        await stage.installed()
        with pytest.raises(InputError, match=r"RolloutPolicy r: spec\.finishBy: 'soon' cannot be used: write "):
            await plan_of(stage, NEW, file)
        said = capsys.readouterr().err.strip()
        assert said == "RolloutPolicy r: spec.retrys is no field, and is ignored; did you mean retries?"
        await apply(stage, domains={"key": names.UPGRADE_STATE})
        assert any(f"problem: RolloutPolicy default: spec.domains.key: '{names.UPGRADE_STATE}' cannot be used" in line
                   for line in lines(await plan_of(stage, NEW)))

    play()


def test_limits_and_windows_of_files_count(tmp_path: Path) -> None:
    shut = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
            "spec": {"windows": [{"schedule": "0 3 * * *", "duration": "1h"}]}}
    wide, night = tmp_path / "wide.yaml", tmp_path / "night.yaml"
    wide.write_text(yaml.safe_dump(body(maxParallelUpgrades=3, maxUnavailable="100%")))
    night.write_text(yaml.safe_dump(shut))

    @on_stage(3)
    async def play(stage: Stage) -> None:
        await stage.installed()
        assert [one.when for one in (await plan_of(stage, "", wide)).nodes] == [When.NOW] * 3
        held = (await plan_of(stage, "", wide, night)).nodes
        assert {(one.when, one.reason) for one in held} == {(When.NEXT, "WindowShut")}
        assert [one.place for one in held] == [1, 2, 3]
        assert {one.until for one in held} == {1767236400.0}
        # A file with nothing but settings of the rollout will do, beside a version.
        assert {one.reason for one in (await plan_of(stage, NEW, night)).nodes} == {"WindowShut"}

    play()


# What is later comes by itself, and what is held or stopped does not.


def whens(found: Foresight) -> dict[str, tuple[str, str]]:
    return {one.node: (str(one.when), one.reason) for one in found.nodes}


@on_stage(2)
async def test_windows_that_never_open_hold_nodes(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[window(-7200, -3600)])
    await stage.rest(30)
    found = await plan_of(stage, NEW)
    assert whens(found) == {node: ("is stopped", "WindowShut") for node in ("gpu-1", "gpu-2")}
    await stage.upgrade_to(NEW)
    await stage.rest(86400)
    assert stage.drivers() == [OLD]


@on_stage(4)
async def test_nodes_behind_a_wave_that_is_held_are_stopped_and_others_have_their_turn(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("stuck", 1, node="gpu-1", max_unavailable=0)
    await apply(stage, waves=[{"name": "canary", "nodes": 2}])
    await stage.rest(30)
    found = await plan_of(stage, NEW)
    assert whens(found) == {"gpu-2": ("starts now", ""), "gpu-1": ("is held", "BudgetBlocks"),
                            "gpu-3": ("is stopped", "WaveNotDone"), "gpu-4": ("is stopped", "WaveNotDone")}
    assert {one.behind for one in found.nodes if one.reason == "WaveNotDone"} == {("gpu-1", "gpu-2")}
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.driver("gpu-2") == NEW and stage.state("gpu-2") == State.DONE, 3600)
    await stage.rest(86400)
    assert [stage.driver(node) for node in ("gpu-1", "gpu-3", "gpu-4")] == [OLD] * 3
    assert whens(await plan_of(stage))["gpu-3"] == ("is stopped", "WaveNotDone")
    assert (await status_of(stage))["groups"] == [
        {"group": "held", "nodes": 1, "reasons": {"BudgetBlocks": 1}},
        {"group": "stopped", "nodes": 2, "reasons": {"WaveNotDone": 2}}, {"group": "up to date", "nodes": 1, "reasons": {}}]
    async with looking(stage) as picture:
        assert stopped(picture), "whoever waits there for the end would wait in vain"
        assert headline(picture).endswith("1 of 4 nodes up to date, 1 held; the rollout has stopped: wave canary waits for gpu-1")
    remedy = (await explanation_of(stage, "gpu-3")).remedies[0]
    assert remedy.do == "see what node gpu-1 waits for and mend that, or leave it out of the rollout"
    assert [command.split()[:3] for command in remedy.commands] == [["gpuward", "explain", "gpu-1"], ["kubectl", "label", "node"]]
    stage.sandbox.store.delete("poddisruptionbudgets.policy", WORKLOAD_NAMESPACE, "stuck")
    await stage.rest(30)
    assert {when for when, _ in whens(await plan_of(stage)).values()} <= {
        "under way", "starts now", "has its turn later", "has nothing to do"}
    await stage.until(lambda: stage.drivers() == [NEW] and stage.all_are(State.DONE), 3600)


@on_stage(3, upgrade={"maxUnavailable": "100%"})
async def test_a_wave_that_cannot_be_upgraded_now_holds_only_where_none_of_it_is_done(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.disconnect("gpu-1")
    await stage.rest(120)
    await apply(stage, waves=[{"name": "canary", "nodes": 2}])
    await stage.rest(30)
    assert whens(await plan_of(stage, NEW)) == {
        "gpu-2": ("starts now", ""), "gpu-3": ("has its turn later", "WaveNotDone"), "gpu-1": ("is held", "NodeNotReady")}
    await edit(stage, waves=[{"name": "canary", "nodeSelector": {"kubernetes.io/hostname": "gpu-1"}}])
    await stage.rest(30)
    assert whens(await plan_of(stage, NEW)) == {
        "gpu-1": ("is held", "NodeNotReady"), "gpu-2": ("is stopped", "WaveNotDone"), "gpu-3": ("is stopped", "WaveNotDone")}


@on_stage(3)
async def test_approvals_that_waves_will_ask_for_are_told_beforehand(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, waves=[{"name": "canary", "nodes": 1, "approval": "Required"}])
    await stage.rest(30)
    assert as_json(await plan_of(stage))["approvals"] == [], "nothing is to be upgraded"
    found = await plan_of(stage, NEW)
    assert [when for when, _ in whens(found).values()] == ["starts now", "has its turn later", "has its turn later"]
    assert "wave canary asks for an approval once it is done: later waves wait for `gpuward approve`" in list(lines(found))
    assert as_json(found)["approvals"] == [{"wave": "canary", "driver": None}]
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-2") == "ApprovalRequired", 3600)
    found = await plan_of(stage)
    assert [when for when, _ in whens(found).values()] == ["is stopped", "is stopped", "has nothing to do"]
    assert as_json(found)["approvals"] == [], "it asks by now: that is what stops nodes"


@on_stage(2)
async def test_a_node_that_failed_and_is_tried_again_is_not_held(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, retries=3, retryBackoff="1h", deadlines={"pod-restart-required": "2m"},
                failureBudget={"nodes": 9, "percent": 100})
    await stage.rest(1)
    fault = Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "RetryLater", 3600)
    (one,) = [one for one in (await plan_of(stage)).nodes if one.node == "gpu-1"]
    assert (str(one.when), one.reason, one.place) == ("has its turn later", "RetryLater", 0)
    assert one.until is not None
    stage.sandbox.faults.clear(fault)
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == State.DONE, 7200)


@on_stage(6)
async def test_pools_of_nvidiadrivers_have_limits_of_their_own(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a"), nvidia_driver("b", {"maxParallelUpgrades": 2, "maxUnavailable": "100%"}))
    found = await plan_of(stage, NEW)
    assert {one.node for one in found.nodes if one.when is When.NOW} == {"gpu-1", "gpu-4", "gpu-5"}
    assert {one.node: one.behind for one in found.nodes if one.when is When.NEXT} == {
        "gpu-2": ("gpu-1",), "gpu-3": ("gpu-1",), "gpu-6": ("gpu-4", "gpu-5")}


# Undisturbed rollouts, in every order that drawn workloads make.


PRIORITIES = {"low": 100, "high": 1000}
VERSIONS = {"clusterpolicy": (OLD, NEW), "precompiled": ("580", "590"), "nvidiadrivers": (OLD, NEW)}


async def run_workloads(stage: Stage, random: Random) -> None:
    """Run drawn GPU pods, each of which stays with its node, so that nothing that goes from one changes another's place."""
    for name, value in PRIORITIES.items():
        stage.sandbox.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                             "value": value})
    for node in [node["metadata"]["name"] for node in stage.gpu_node_objects()]:
        if random.random() < 0.4:
            continue
        template = gpu_template(f"work-{node}")
        template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        template["spec"] |= random.choice([{}, {"priorityClassName": "low"}, {"priorityClassName": "high"}])
        stage.sandbox.apply(deployment(f"work-{node}", WORKLOAD_NAMESPACE, random.randint(1, 3), template))
        await stage.rest(random.choice([0, 1, 30]))
    await stage.until(lambda: all(map(is_ready, stage.workload_pods())))
    await stage.rest(30)


async def prepare(stage: Stage, mode: str, upgrade: Mapping[str, Any]) -> None:
    """Wait until the old driver runs on all nodes."""
    old, _ = VERSIONS[mode]
    if mode == "nvidiadrivers":
        await with_pools(stage, nvidia_driver("a", upgrade), nvidia_driver("b"))
    elif mode == "precompiled":
        await stage.until(lambda: stage.all_are(State.DONE), 3600)
        await set_driver(stage, {"usePrecompiled": True, "version": old})
        await stage.rest(60)
    await stage.until(lambda: stage.all_are(State.DONE) and stage.policy_status().get("state") == "ready", 7200)
    await run_workloads(stage, random=Random(str(upgrade)))


async def change(stage: Stage, mode: str, new: str) -> None:
    if mode != "nvidiadrivers":
        await set_driver(stage, {"version": new})
    for name in "ab" if mode == "nvidiadrivers" else "":
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, name, {"spec": {"version": new}})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", VERSIONS)
def test_the_order_of_an_undisturbed_rollout_is_the_one_that_was_planned(mode: str, seed: int) -> None:
    random = Random(f"{mode}/{seed}")
    upgrade = {"maxParallelUpgrades": random.choice([1, 1, 2, 3]), "maxUnavailable": random.choice([1, 2, "50%", "100%"])}
    nodes = 6 if mode == "nvidiadrivers" else random.randint(2, 6)

    async def main() -> tuple[Foresight, list[str], dict[str, str]]:
        async with playing(Stage(nodes, upgrade=upgrade, seed=seed)) as stage:
            await prepare(stage, mode, upgrade)
            found = await plan_of(stage, VERSIONS[mode][1])
            stage.history.clear()
            await change(stage, mode, VERSIONS[mode][1])
            await stage.until(lambda: len(started(stage)) == nodes, 7200)
            return found, started(stage), {node: stage.labels(node).get(names.DRIVER_OWNER, "") for node in stage.states()}

    found, happened, pools = run_virtual(main)
    for pool in set(pools.values()):
        planned = [one for one in found.nodes if pools[one.node] == pool]
        first = sum(one.when is When.NOW for one in planned)
        mine = [node for node in happened if pools[node] == pool]
        assert first
        assert all(one.place for one in planned)
        assert sorted(one.node for one in planned[:first]) == sorted(mine[:first]), "these start at once"
        assert [one.node for one in planned[first:]] == mine[first:]


@on_stage(3)
async def test_nothing_is_held_in_a_first_installation(stage: Stage) -> None:
    seen = set()
    for _ in range(40):
        found = await plan_of(stage)
        seen |= {str(one.when) for one in found.nodes}
        assert "held" not in next(lines(found)), next(lines(found))
        assert [report.node for report in await held(stage)] == []
        await stage.rest(1)
    assert seen >= {"waits", "has nothing to do"}, seen


@on_stage(3)
async def test_plan_and_status_have_one_word_for_one_thing(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("stuck", 1, node="gpu-1", max_unavailable=0)
    await stage.label("gpu-2", names.UPGRADE_SKIP, "true")
    found = await plan_of(stage, NEW)
    assert whens(found) == {
        "gpu-1": ("is held", "BudgetBlocks"), "gpu-2": ("is skipped", "Skipped"), "gpu-3": ("starts now", "")}
    assert next(lines(found)) == "3 nodes: 1 starts now, 1 is held, 1 is skipped."
    await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
    await stage.upgrade_to(NEW)
    await stage.rest(30)
    found = await plan_of(stage)
    assert {when for when, _ in whens(found).values()} == {"is stopped"}
    assert [one.node for one in await held(stage)] == ["gpu-1", "gpu-2", "gpu-3"]


@on_stage(2)
async def test_a_node_under_way_in_trouble_is_among_the_held_ones_and_one_that_goes_on_is_not(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.faults.add(Fault(FaultKind.IMAGE_PULL, image=f"*{NEW}*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: "DriverFailing" in {stage.hold("gpu-1"), stage.hold("gpu-2")})
    await stage.rest(5)
    assert sorted(one.reason for one in await held(stage)) == ["DriverFailing", "NewDriverFails"]


@on_stage(gpu_nodes=2)
async def test_a_node_under_way_waits_for_an_operator_where_none_runs(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=600)
    node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
    await stage.until(lambda: any(map(is_terminating, stage.pods(names.DRIVER_APP, node))))
    await stage.kill_operator()
    await stage.rest(900)
    found = await plan_of(stage)
    (one,) = [each for each in found.nodes if each.node == node]
    assert (one.when, one.message) == (When.UNDER_WAY, "waits for an operator: it goes on once one runs")
