"""`gpuward pause`, `resume`, `retry` and `skip`: what each writes, when it writes nothing, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from gpuward import names
from gpuward.cli.nodes import retry_nodes, skip_nodes
from gpuward.cli.pause import pause_rollouts
from gpuward.cli.resume import resume_paused
from gpuward.cli.rollouts import time_of
from gpuward.errors import GpuwardError, InputError
from gpuward.kube import resources
from gpuward.kube.http.client import JSON_PATCH
from gpuward.kube.lease.rules import micro_time
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.sim.faults import Fault
from kubesandbox.timeloop import run_virtual
from tests.cli.verbs import Cluster, Object, left_to_drivers, node, on_cluster, said, switched
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import nvidia_driver
from tests.journeys.test_rolloutpolicy import apply

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}
OFF, REQUIRED, FAILED = {"autoUpgrade": False}, State.UPGRADE_REQUIRED, State.FAILED


def auto_upgrade(cluster: Cluster, driver: str = "") -> object:
    if driver:
        return cluster.driver(driver)["spec"].get("upgradePolicy", {}).get("autoUpgrade", True)
    return cluster.policy()["spec"]["driver"]["upgradePolicy"]["autoUpgrade"]


# pause and resume


@on_cluster(switched(True), node("a", State.DRAIN_REQUIRED), node("b", State.DONE))
async def test_a_pause_turns_upgrades_off_and_resume_turns_them_on(cluster: Cluster) -> None:
    first, following = await cluster.pause()
    assert auto_upgrade(cluster) is False
    assert first == "ClusterPolicy cluster-policy: upgrades are off (spec.driver.upgradePolicy.autoUpgrade: false)"
    assert "1 node is under way and is at most validated and put back into service (a)" in following
    assert following.endswith("`gpuward resume` turns upgrades on again")
    assert (await cluster.resume())[0].startswith("ClusterPolicy cluster-policy: upgrades are on again")
    assert auto_upgrade(cluster) is True
    assert names.PAUSED_AT not in cluster.policy()["metadata"]["annotations"]


@on_cluster(switched(True), node("b", State.DONE))
async def test_resume_says_that_nothing_comes_next_where_no_operator_runs(cluster: Cluster) -> None:
    await cluster.pause()
    told = await cluster.resume()
    assert told[-1] == ("Next: nothing yet, as no operator runs: there is no Lease "
                        f"{names.DEFAULT_NAMESPACE}/{names.LEADER_LEASE}")
    cluster.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.DEFAULT_NAMESPACE}})
    cluster.sandbox.apply({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names.LEADER_LEASE, "namespace": names.DEFAULT_NAMESPACE},
        "spec": {"holderIdentity": "gpuward-abc_1f2e", "leaseDurationSeconds": 15,
                 "renewTime": micro_time(time_of(cluster.client))}})
    await cluster.pause()
    assert (await cluster.resume())[-1].startswith("Next: nodes start when their turn comes")


def serving_machines() -> Object:
    body = switched(True)
    body["spec"]["sandboxWorkloads"] = {"enabled": True}
    return body


@on_cluster(serving_machines(), node("b", State.UNKNOWN))
async def test_resume_says_that_it_turns_no_upgrades_on_where_nodes_serve_virtual_machines(cluster: Cluster) -> None:
    before = cluster.versions()
    assert await cluster.resume() == ["ClusterPolicy cluster-policy: no driver is upgraded while spec.sandboxWorkloads.enabled "
                                      "is true, and resume does not change that"]
    assert cluster.versions() == before


@on_cluster(switched(True), node("b", State.DONE))
async def test_a_pause_that_is_repeated_writes_nothing(cluster: Cluster) -> None:
    await cluster.pause()
    before = cluster.versions()
    line, following = await cluster.pause()
    assert "upgrades are off already, since " in line
    assert line.endswith(" by `gpuward pause`: nothing is written")
    assert following.startswith("Next: no node is under way, and none starts")
    assert cluster.versions() == before


@on_cluster(switched(False), node("b", State.DONE))
async def test_upgrades_that_somebody_else_turned_off_stay_off(cluster: Cluster) -> None:
    before = cluster.versions()
    assert "off already, not by `gpuward pause`: nothing is written" in (await cluster.pause())[0]
    nothing, off = await cluster.resume()
    assert "there is nothing to resume" in nothing
    assert "set spec.driver.upgradePolicy.autoUpgrade to true to turn them on" in off
    assert cluster.versions() == before


@on_cluster(switched(True), node("b", State.DONE))
async def test_what_somebody_has_turned_on_and_off_again_since_a_pause_stays_off(cluster: Cluster) -> None:
    path = resources.CLUSTER_POLICIES.path("", "cluster-policy")

    def write(manager: str, body: object, content_type: str) -> None:
        query = {"fieldManager": manager, "force": "true"} if "apply" in content_type else {"fieldManager": manager}
        answer = cluster.sandbox.api.handle(Request("PATCH", path, query, json.dumps(body).encode(), content_type))
        assert isinstance(answer, Answer)
        assert answer.status == 200, answer.body

    write("helm", switched(True), "application/apply-patch+yaml")
    await cluster.pause()
    assert "off already, since " in (await cluster.pause())[0]
    for value in (True, False):
        write("kubectl-edit", [{"op": "add", "path": "/spec/driver/upgradePolicy/autoUpgrade", "value": value}], JSON_PATCH)
    assert "off already, not by `gpuward pause`" in (await cluster.pause())[0]
    assert "upgrades are off, and not by `gpuward pause`" in (await cluster.resume())[1]
    assert auto_upgrade(cluster) is False


@on_cluster(switched(True), node("b", State.DONE), node("c", FAILED, failed_at=5.0))
async def test_a_failure_is_forgiven_once_and_then_there_is_nothing_to_resume(cluster: Cluster) -> None:
    assert "1 failed node no longer counts against the failure budget (c)" in (await cluster.resume())[0]
    before = cluster.versions()
    (line,) = await cluster.resume()
    assert "there is nothing to resume, as no node waits or has failed since it was resumed last, at " in line
    assert line.endswith(": nothing is written")
    assert cluster.versions() == before


@on_cluster(left_to_drivers(), nvidia_driver("x"), nvidia_driver("y", OFF), nvidia_driver("z"),
            node("a", State.DRAIN_REQUIRED, labels={names.DRIVER_OWNER: "x"}))
async def test_a_pause_is_of_all_nvidiadrivers_and_resume_leaves_one_off_that_was_off_before(cluster: Cluster) -> None:
    lines = await cluster.pause()
    assert [auto_upgrade(cluster, name) for name in "xyz"] == [False] * 3
    assert lines[0] == "NVIDIADriver x: upgrades are off (spec.upgradePolicy.autoUpgrade: false)"
    assert "NVIDIADriver y: upgrades are off already" in lines[1]
    assert "(a)" in lines[-1]
    told = "\n".join(await cluster.resume())
    assert [auto_upgrade(cluster, name) for name in "xyz"] == [True, False, True]
    assert "NVIDIADriver y: upgrades are off, and not by `gpuward pause`" in told


@on_cluster(left_to_drivers(), nvidia_driver("x"), nvidia_driver("y"), node("a", State.DRAIN_REQUIRED))
async def test_one_nvidiadriver_is_paused_and_resumed_alone(cluster: Cluster) -> None:
    told = await cluster.pause("x")
    assert told[-1] == "Next: no node is under way, and none starts; `gpuward resume --driver x` turns upgrades on again"
    assert [auto_upgrade(cluster, name) for name in "xy"] == [False, True]
    await cluster.pause("y")
    await cluster.resume("x")
    assert [auto_upgrade(cluster, name) for name in "xy"] == [True, False]


@pytest.mark.parametrize(("objects", "driver", "problem"), [
    ((), "", "there is no ClusterPolicy, and so no rollout to pause"),
    ((left_to_drivers(),), "", "leaves drivers to NVIDIADrivers, and there is none"),
    ((left_to_drivers(), nvidia_driver("pool-b")), "pool-a", "name an NVIDIADriver, such as pool-b"),
    ((switched(True), nvidia_driver("pool-a")), "pool-a", "does not set driver.useNvidiaDriverCRD"),
])
def test_a_rollout_that_is_not_there_cannot_be_paused(objects: tuple[dict[str, object], ...], driver: str, problem: str) -> None:
    async def play() -> None:
        with pytest.raises(GpuwardError, match=problem):
            await Cluster(*objects).pause(driver)

    run_virtual(play)


@on_cluster(switched(True), node("a", FAILED, failed_at=5.0), node("b", FAILED, failed_at=5.0))
async def test_a_dry_run_writes_nothing(cluster: Cluster) -> None:
    before = cluster.versions()
    for told in (await cluster.pause(dry_run=True), await cluster.resume(dry_run=True), await cluster.retry("a", dry_run=True),
                 await cluster.skip("a", "b", dry_run=True)):
        assert told[0].endswith("; a dry run writes nothing")
    assert cluster.versions() == before


def edited_meanwhile(cluster: Cluster, path: str, *operations: dict[str, object]) -> None:
    """Let somebody else patch an object after it was read, and before the first patch of ours arrives."""
    body = json.dumps(operations).encode()

    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method == "PATCH":
            cluster.transport.interfere = lambda request, proceed: proceed()
            cluster.sandbox.api.handle(Request("PATCH", path, {}, body, JSON_PATCH))
        return proceed()

    cluster.transport.interfere = interfere


@on_cluster(switched(True))
async def test_upgrades_that_somebody_else_turns_off_meanwhile_are_not_ours_to_turn_on(cluster: Cluster) -> None:
    edited_meanwhile(cluster, resources.CLUSTER_POLICIES.path("", "cluster-policy"),
                     {"op": "add", "path": "/spec/driver/upgradePolicy/autoUpgrade", "value": False})
    assert "off already, not by `gpuward pause`" in (await cluster.pause())[0]
    assert names.PAUSED_AT not in (cluster.policy()["metadata"].get("annotations") or {})


@on_cluster(switched(True))
async def test_what_somebody_else_writes_meanwhile_stays(cluster: Cluster) -> None:
    edited_meanwhile(cluster, resources.CLUSTER_POLICIES.path("", "cluster-policy"),
                     {"op": "add", "path": "/spec/driver/version", "value": "1.2.3"})
    assert "upgrades are off (" in (await cluster.pause())[0]
    assert cluster.policy()["spec"]["driver"]["version"] == "1.2.3"


# retry and skip


@on_cluster(switched(True), node("a", FAILED, failed_at=5.0), node("b", FAILED), node("c", REQUIRED))
async def test_failed_nodes_are_labelled_to_be_tried_again(cluster: Cluster) -> None:
    told = await cluster.retry("a", "b", "c", "a")
    assert [cluster.labels(name)[names.UPGRADE_STATE] for name in "abc"] == [REQUIRED] * 3
    assert told == [
        "a is tried again (upgrade-failed -> upgrade-required), after it failed once, last in drain-required: a pod stayed; "
        "next: it starts when its turn comes, and `gpuward explain a` says what it waits for",
        "b is tried again (upgrade-failed -> upgrade-required); "
        "next: it starts when its turn comes, and `gpuward explain b` says what it waits for",
        "c is to be upgraded already (upgrade-required), and `gpuward explain c` says what it waits for: nothing is written",
    ]


@pytest.mark.parametrize(("name", "problem"), [
    ("gpu-9", "NODE: 'gpu-9' cannot be used: name a node of the cluster, such as gpu-1"),
    ("gpu-1", "NODE: 'gpu-1' cannot be used: only a node that has failed can be tried again, and this one is in upgrade-done"),
    ("drains", "this one is being upgraded now (drain-required): `gpuward explain drains` says what it waits for"),
    ("odd", "this one has the state broken, which is none of the known ones"), ("plain", "this one has no upgrade state"),
])
def test_a_node_that_cannot_be_tried_again_keeps_all_from_it(name: str, problem: str) -> None:
    cluster_of = (switched(True), node("fails", FAILED), node("gpu-1", State.DONE), node("drains", State.DRAIN_REQUIRED),
                  node("odd", labels={names.UPGRADE_STATE: "broken"}), node("plain"))

    async def play() -> None:
        cluster = Cluster(*cluster_of)
        before = cluster.versions()
        with pytest.raises(InputError, match=re.escape(problem)):
            await cluster.retry("fails", name)
        assert cluster.versions() == before

    run_virtual(play)


@pytest.mark.parametrize("failed", [node("a", FAILED), node("a", failed_at=5.0)], ids=["labelled", "without the label"])
def test_a_node_is_not_tried_again_in_a_pause(failed: dict[str, object]) -> None:
    async def play() -> None:
        cluster = Cluster(switched(True), failed)
        await cluster.pause()
        with pytest.raises(InputError, match=r"ClusterPolicy cluster-policy has upgrades off, .*: `gpuward resume` first"):
            await cluster.retry("a")

    run_virtual(play)


@on_cluster(switched(True), node("a", FAILED))
async def test_a_node_that_changes_meanwhile_is_judged_anew(cluster: Cluster) -> None:
    edited_meanwhile(cluster, resources.NODES.path("", "a"),
                     {"op": "add", "path": "/metadata/labels/nvidia.com~1gpu-driver-upgrade-state", "value": "drain-required"})
    with pytest.raises(InputError, match="being upgraded now"):
        await cluster.retry("a")
    assert cluster.labels("a")[names.UPGRADE_STATE] == State.DRAIN_REQUIRED


@on_cluster(switched(True), node("cpu-1"))
async def test_that_a_node_has_no_gpu_is_said_where_it_is_skipped(cluster: Cluster) -> None:
    (told,) = await cluster.skip("cpu-1")
    assert told.endswith("; no GPU is known there, so it has no driver now")


@on_cluster(switched(True), node("a", State.DONE), node("b", State.DRAIN_REQUIRED),
            node("c", REQUIRED, labels={names.UPGRADE_SKIP: "false"}))
async def test_nodes_are_skipped_and_no_longer(cluster: Cluster) -> None:
    assert await cluster.skip("a", "b", "c") == [
        "a is skipped; next: no driver upgrade of it starts until `gpuward skip --undo a`",
        "b is skipped; next: its upgrade is under way (drain-required) and goes on, and no later upgrade of b starts until "
        "`gpuward skip --undo b`",
        "c is skipped; next: no driver upgrade of it starts until `gpuward skip --undo c`"]
    assert [cluster.labels(name)[names.UPGRADE_SKIP] for name in "abc"] == ["true"] * 3
    before = cluster.versions()
    assert await cluster.skip("a") == ["a is skipped already: nothing is written"]
    assert cluster.versions() == before
    assert await cluster.skip("a", "c", undo=True) == [
        "a is no longer skipped; next: it is upgraded with the next new driver",
        "c is no longer skipped; next: it starts when its turn comes, and `gpuward explain c` says what it waits for"]
    assert names.UPGRADE_SKIP not in cluster.labels("a")
    assert await cluster.skip("a", undo=True) == ["a is not skipped: nothing is written"]


@on_cluster(switched(True), node("b", State.DRAIN_REQUIRED), node("cpu-1"), node("f", State.FAILED))
async def test_what_becomes_of_a_node_that_is_skipped_no_longer_is_said(cluster: Cluster) -> None:
    await cluster.skip("b", "cpu-1", "f")
    assert await cluster.skip("b", "cpu-1", "f", undo=True) == [
        "b is no longer skipped; next: its upgrade is under way (drain-required) and goes on",
        "cpu-1 is no longer skipped; next: no GPU is known there, so it has no driver now",
        "f is no longer skipped; next: its last upgrade did not succeed, and `gpuward explain f` says when it is tried again"]


@on_cluster(switched(True), node("gpu-3", State.DONE))
async def test_an_unknown_node_is_answered_with_the_nearest(cluster: Cluster) -> None:
    for undo in (False, True):
        with pytest.raises(InputError, match="name a node of the cluster, such as gpu-3"):
            await cluster.skip("gpu-33", undo=undo)


# What an operator makes of it


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_rollout_stands_still_in_a_pause_and_ends_after_it(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.DONE in stage.entered("gpu-1"))
    await said(pause_rollouts(stage.user, "", dry_run=False))
    await stage.rest(1800)
    upgraded = stage.drivers()
    assert upgraded == ["595.91.07", NEW]
    await said(resume_paused(stage.user, "", dry_run=False))
    await stage.upgraded()


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_failed_node_is_tried_again_and_a_skipped_one_left_alone(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, failureBudget={"nodes": 5}, retries=0)
    await said(skip_nodes(stage.user, ["gpu-2"], undo=False, dry_run=False))
    fault = Fault(FaultKind.DRIVER_CRASH, image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == FAILED, within=7200)
    stage.sandbox.faults.clear(fault)
    await said(retry_nodes(stage.user, ["gpu-1"], dry_run=False))
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == NEW)
    assert stage.driver("gpu-2") == "595.91.07"
    await said(skip_nodes(stage.user, ["gpu-2"], undo=True, dry_run=False))
    await stage.upgraded()
