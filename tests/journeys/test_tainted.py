"""Nodes whose driver pod no DaemonSet makes, as for a taint: those on call are told, and others do not wait in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gpuward import names
from gpuward.cli.waiting import stopped
from gpuward.kube import resources
from tests.journeys.looking import condition_of, explanation_of, headline_of, looking, obey, reason_of, screen_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_metrics import Scrape

ALERTS = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
WAITS = ("waits for the DaemonSet to make a driver pod on this node, whose taint maintenance=true:NoExecute it does not "
         "tolerate")
HELD_SINCE = "gpuward_driver_upgrade_held_since_timestamp_seconds"


async def taint(stage: Stage, node: str, key: str = "maintenance") -> None:
    """Give a node a taint that no operand tolerates; its pods have to go."""
    taints = [{"key": key, "value": "true", "effect": "NoExecute"}]
    await stage.user.patch_merge(resources.NODES, node, {"spec": {"taints": taints}})


def paged(stage: Stage) -> set[str]:
    """Return the reasons for which GpuwardNodeHeld fires now."""
    (expr,) = (rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
               if rule["alert"] == "GpuwardNodeHeld")
    reasons = re.findall(r'reason=~"([^"]*)"', expr)[0].split("|")
    seen = Scrape(stage)
    return {reason for reason, since in seen.by(HELD_SINCE, "reason").items() if reason in reasons and seen.at - since > 1800}


@on_stage(gpu_nodes=2)
async def test_an_alert_tells_of_a_node_that_was_done_and_has_lost_its_driver_pod(stage: Stage) -> None:
    await stage.installed()
    await taint(stage, "gpu-2")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverPodMissing")
    assert paged(stage) == set(), "mostly that takes seconds"
    await stage.rest(2000)
    assert paged(stage) == {"DriverPodMissing"}
    assert stage.policy_status()["state"] == "ready", "nothing else tells of it: no pod is wanted there"


@on_stage(gpu_nodes=2)
async def test_a_node_that_loses_its_driver_to_a_taint_is_told_of_at_once(stage: Stage) -> None:
    await stage.installed()
    await taint(stage, "gpu-2")
    await stage.until(lambda: not stage.pods(names.DRIVER_APP, "gpu-2"))
    await stage.rest(15)
    assert f"DriverPodMissing: {WAITS}" in stage.events("gpu-2")
    assert [line["node"] for line in stage.log if line.get("reason") == WAITS] == ["gpu-2"]


@on_stage(gpu_nodes=2)
async def test_a_node_names_the_taint_and_who_waits_for_the_fleet_is_told_that_it_does_not_go_on(stage: Stage) -> None:
    await stage.installed()
    await taint(stage, "gpu-2")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverPodMissing")
    assert reason_of(await explanation_of(stage, "gpu-2")) == WAITS
    async with looking(stage) as picture:
        assert stopped(picture).startswith("DriversNotReady: 1 of 2 nodes up to date")
    await taint(stage, "gpu-2", "node.cilium.io/agent-not-ready")
    await stage.rest(10)
    async with looking(stage) as picture:
        assert stopped(picture) == "", "that goes by itself"


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
async def test_nodes_behind_one_that_was_done_and_keeps_its_driver_pod_away_do_not_go_on(stage: Stage) -> None:
    await stage.installed()
    await taint(stage, "gpu-2")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverPodMissing")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await stage.rest(10)  # nobody starts in the first seconds of a driver
    remedy = (await explanation_of(stage, "gpu-1")).remedies[0]
    assert remedy.commands == ("kubectl taint node gpu-2 maintenance:NoExecute-",)
    assert remedy.do.startswith("take taint maintenance=true:NoExecute from node gpu-2, once")
    assert remedy.then == "this node starts at once"
    assert "nodes that are out of service use up maxUnavailable" in await headline_of(stage)
    await stage.user.patch_merge(resources.NODES, "gpu-2", {"spec": {"taints": None}})
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
async def test_explain_names_a_node_that_was_done_and_gets_no_driver_pod_to_those_behind_it(stage: Stage) -> None:
    """As for a quota, or Pod Security here: how long that has been so, and whether it will last, nothing tells."""
    await stage.installed()
    await stage.user.patch_merge(resources.NAMESPACES, names.DEFAULT_NAMESPACE, {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    await stage.user.delete(resources.PODS, stage.driver_pod("gpu-2")["metadata"]["name"], names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.hold("gpu-2") == "DriverPodMissing")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "UnavailableLimit")
    notes = (await explanation_of(stage, "gpu-1")).notes
    assert [note for note in notes if note.startswith("gpu-2 takes part of that room without being under way")]
    assert not [note for note in notes if "without anybody's help" in note]
    assert any("2 waiting for room, of which 1 node without a driver pod takes some" in line for line in await screen_of(stage))


@pytest.mark.parametrize("key", [
    "node.cilium.io/agent-not-ready", "node.cloudprovider.kubernetes.io/uninitialized", "karpenter.sh/unregistered",
    "startup-taint.cluster-autoscaler.kubernetes.io/gpu"])
def test_a_taint_of_a_start_goes_by_itself(key: str) -> None:
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await taint(stage, "gpu-2", key)
        await stage.until(lambda: stage.hold("gpu-2") == "DriverPodMissing")
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "UnavailableLimit")
        await stage.user.patch_merge(resources.NODES, "gpu-2", {"spec": {"taints": None}})
        await stage.upgraded()

    scenario()


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
async def test_a_failed_node_that_gets_no_driver_pod_stops_the_rollout_in_words_too(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-2")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == "upgrade-done")
    await stage.until(lambda: "pod-restart-required" in stage.states().values())
    broken = next(node for node, state in stage.states().items() if state == "pod-restart-required")
    last = next(node for node, state in stage.states().items() if state == "upgrade-required")
    await taint(stage, broken)
    await stage.rest(240)
    assert [event for event in stage.events(broken) if "DriverPodMissing" in event] == [f"DriverPodMissing: {WAITS}"]
    await stage.rest(120)
    waits = f"DriverPodMissing: {WAITS}"
    assert stage.events(broken)[-1] == waits, "its deadline is far away"
    assert "1 under way in trouble" in await headline_of(stage)
    await stage.rest(2640)
    assert (stage.state(broken), stage.hold(broken)) == ("upgrade-failed", "DriverPodMissing")
    assert stage.events(broken)[-1] == waits, "the event before says that it is tried again by itself"
    assert stage.hold(last) == "NoNodeMayStart", "nothing brings it back but somebody"
    assert condition_of(stage)[1] == "NoNodeMayStart"
    assert broken in reason_of(await explanation_of(stage, last))
    (taken,) = (await explanation_of(stage, broken)).remedies
    assert taken.commands == (f"kubectl taint node {broken} maintenance:NoExecute-",)
    await stage.user.patch_merge(resources.NODES, broken, {"spec": {"taints": None}})
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1})
async def test_nodes_behind_one_whose_label_asks_for_no_driver_are_sent_there_before_more_may_be_away(stage: Stage) -> None:
    """All that was advised was to let more nodes be out of service, for what a typing error keeps away."""
    await stage.installed()
    await stage.label("gpu-2", names.DEPLOY_DRIVER, "flase")
    await stage.until(lambda: stage.hold("gpu-2") == "DriverLabelUnknown")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
    await stage.rest(10)
    first, *more = (await explanation_of(stage, "gpu-1")).remedies
    assert (first.do, first.commands) == ("look at node gpu-2, which no upgrade brings back", ("gpuward explain gpu-2",))
    assert first.then == "this node starts at once"
    assert [each.do for each in more] == ["raise maxUnavailable to 2"]
    (mended, *_) = (await explanation_of(stage, "gpu-2")).remedies
    await obey(stage, mended.commands[0])
    await stage.upgraded()
