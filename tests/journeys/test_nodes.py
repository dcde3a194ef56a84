"""Nodes that are in trouble, that somebody wants left alone, that go and that come."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.cli.readiness import words_of_readiness
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import gpu_node
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready
from tests.journeys.looking import explanation_of, headline_of, reason_of, screen_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, blind_to_budgets, on_stage, policy

ALL = {"maxUnavailable": "100%", "maxParallelUpgrades": 1}


def others_are_done(stage: Stage, *but: str) -> bool:
    return all(state == State.DONE and stage.driver(node) == NEW for node, state in stage.states().items() if node not in but)


@on_stage(gpu_nodes=3, upgrade=ALL)
async def test_a_node_that_is_not_ready_is_skipped_with_one_warning_and_caught_up_later(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.set_node_ready("gpu-2", False)
    await stage.rest(1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: others_are_done(stage, "gpu-2"))
    await stage.rest(300)
    assert stage.state("gpu-2") == State.UPGRADE_REQUIRED
    assert not stage.cordoned("gpu-2")
    assert stage.hold("gpu-2") == "NodeNotReady"
    assert len(stage.warnings("Node is held", node="gpu-2")) == 1
    stage.sandbox.set_node_ready("gpu-2", True)
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade=ALL | {"maxParallelUpgrades": 2})
async def test_a_node_that_stops_being_ready_in_mid_upgrade_does_not_stop_the_others(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.sandbox.disconnect("gpu-1")
    await stage.until(lambda: others_are_done(stage, "gpu-1"))
    assert len(stage.warnings("Node is held", node="gpu-1")) == 1
    assert stage.hold("gpu-1") == "NodeNotReady"
    (said,) = await words_of_readiness(stage.user, (await explanation_of(stage, "gpu-1")).node)
    assert said.startswith("its condition Ready is Unknown since 2026-01-01T")
    assert said.endswith("Z: NodeStatusUnknown: Kubelet stopped posting node status.")
    assert stage.state("gpu-1") in (State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED)
    stage.sandbox.reconnect("gpu-1")
    await stage.upgraded()
    assert stage.most_in_progress == 2


@pytest.mark.weakness(26)
@on_stage(gpu_nodes=3, upgrade=ALL)
async def test_a_driver_pod_without_a_place_is_warned_of_and_holds_nobody(stage: Stage) -> None:
    await stage.installed()
    node = gpu_node("gpu-9")
    node["status"]["allocatable"]["pods"] = "0"
    node["status"]["capacity"]["pods"] = "0"
    stage.sandbox.add_node(node)
    await stage.until(lambda: stage.warnings("Pod is held"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: others_are_done(stage, "gpu-9"))
    await stage.until(lambda: stage.hold("gpu-9") == "DriverUnplaced")
    assert (stage.state("gpu-9"), stage.cordoned("gpu-9")) == (State.UPGRADE_REQUIRED, False), "it has no driver yet"
    assert "nvidia-driver-daemonset" in stage.warnings("Pod is held")[0]["pod"]


@on_stage(gpu_nodes=3, upgrade=ALL)
async def test_the_skip_label_keeps_a_node_as_it_is_until_it_is_taken_away(stage: Stage) -> None:
    await stage.installed()
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: others_are_done(stage, "gpu-1"))
    await stage.rest(300)
    assert stage.driver("gpu-1") == OLD
    assert stage.state("gpu-1") == State.UPGRADE_REQUIRED
    assert len(stage.warnings("Skipping node", node="gpu-1")) == 1
    await stage.label("gpu-1", names.UPGRADE_SKIP, None)
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade=ALL)
async def test_an_administrators_cordon_outlives_the_upgrade_and_ours_does_not(stage: Stage) -> None:
    await stage.installed()
    await stage.cordon("gpu-2")
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.rest(60)
    assert stage.cordons() == ["gpu-2"]
    assert names.INITIALLY_UNSCHEDULABLE not in stage.node("gpu-2")["metadata"]["annotations"]
    await stage.cordon("gpu-2", False)
    await stage.upgrade_to(OLD)
    await stage.upgraded(OLD)
    assert stage.cordons() == []


@pytest.mark.parametrize("paused", [False, True], ids=["no policy", "paused"])
def test_an_administrators_cordon_is_not_remembered_once_it_is_lifted_while_no_upgrade_goes_on(paused: bool) -> None:
    @on_stage(gpu_nodes=2, upgrade=ALL, interfere=blind_to_budgets)
    async def journey(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("inference", node="gpu-1", max_unavailable=0)
        await stage.cordon("gpu-1")
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
        await stage.user.delete(resources.CLUSTER_POLICIES, POLICY, propagation="Orphan")
        await stage.rest(30)
        if paused:
            stage.sandbox.apply(policy(upgrade={**ALL, "autoUpgrade": False}))
            await stage.rest(30)
        assert names.INITIALLY_UNSCHEDULABLE in stage.node("gpu-1")["metadata"]["annotations"]
        await stage.cordon("gpu-1", False)
        await stage.rest(30)
        assert names.INITIALLY_UNSCHEDULABLE not in stage.node("gpu-1")["metadata"]["annotations"]

    journey()


@on_stage(gpu_nodes=2, upgrade=ALL, interfere=blind_to_budgets)
async def test_a_node_that_somebody_uncordons_in_mid_upgrade_still_ends_in_service(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    await stage.cordon("gpu-1", False)
    await stage.until(lambda: stage.cordoned("gpu-1"), within=60)
    stage.set_budget("inference", 1)
    await stage.upgraded()
    assert stage.cordons() == []


@pytest.mark.weakness(26)
@on_stage(gpu_nodes=3, upgrade=ALL)
async def test_a_node_that_is_taken_away_in_mid_upgrade_gives_its_turn_back(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.sandbox.remove_node("gpu-1")
    await stage.upgraded()
    assert sorted(stage.states()) == ["gpu-2", "gpu-3"]
    assert stage.operator.plan.counts.total == 2


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 0})
async def test_pods_of_a_machine_that_is_gone_do_not_make_the_new_one_of_its_name_serve(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1")
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1"))
    stage.sandbox.remove_node("gpu-1")
    stage.sandbox.add_node(gpu_node("gpu-1"))
    await stage.rest(60)
    assert any(map(is_ready, stage.workload_pods("inference", "gpu-1"))), "a kubelet that knows of no GPUs starts it without them"
    assert stage.driver("gpu-1") == ""
    await stage.upgrade_to(NEW)
    await stage.rest(600)
    assert [stage.driver(node) for node in ("gpu-2", "gpu-3")] == [OLD, OLD], "the one node that may be out of service is gpu-1"
    assert stage.hold("gpu-2") == "UnavailableLimit"
    stage.sandbox.faults.clear()
    await stage.upgraded()


def _is_back(node: dict[str, Any]) -> None:
    next(one for one in node["status"]["conditions"] if one["type"] == "Ready")["status"] = "True"


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 0})
async def test_a_node_that_is_back_serves_once_its_kubelet_has_told_of_its_driver(stage: Stage) -> None:
    """Its first heartbeat comes before the status of its pods, and it may have been rebooted meanwhile."""
    await stage.installed()
    stage.sandbox.disconnect("gpu-3")
    await stage.rest(120)
    stage.sandbox.store.patch_status("nodes", None, "gpu-3", _is_back)
    await stage.upgrade_to(NEW)
    await stage.rest(10)
    assert [stage.state(node) for node in ("gpu-1", "gpu-2")] == [State.UPGRADE_REQUIRED] * 2, "the one that may be out is gpu-3"
    assert stage.hold("gpu-1") == "UnavailableLimit"
    stage.sandbox.reconnect("gpu-3")
    await stage.upgraded()


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_a_node_that_comes_in_mid_rollout_gets_the_new_driver_at_once(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.sandbox.add_node(gpu_node("gpu-3"))
    await stage.upgraded()
    assert stage.entered("gpu-3") == [State.DONE]
    assert stage.most_in_progress == 1


@pytest.mark.parametrize("paused", [False, True])
def test_a_machine_that_dies_while_no_upgrade_is_under_way_is_said_to_be_dead(paused: bool) -> None:
    @on_stage(gpu_nodes=3, upgrade=ALL)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", not paused)
        stage.sandbox.disconnect("gpu-1")
        stage.sandbox.set_node_ready("gpu-3", False)
        await stage.until(lambda: (stage.hold("gpu-1"), stage.hold("gpu-3")) == ("NodeNotReady", "NodeNotReady"), within=300)
        for node in ("gpu-1", "gpu-3"):
            told = await explanation_of(stage, node)
            assert reason_of(told) == "the node is not Ready"
            assert told.remedies, "somebody has to repair it"
        assert "2 held" in await headline_of(stage)
        stage.sandbox.reconnect("gpu-1")
        await stage.until(lambda: not stage.hold("gpu-1"), within=900)
        assert "2 of 3" in await headline_of(stage)

    story()


@on_stage(gpu_nodes=2)
async def test_pods_of_a_node_that_is_ready_again_are_ready_again(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.set_node_ready("gpu-2", False)
    await stage.rest(30)
    assert any("gpu-2: its node is not Ready" in line for line in await screen_of(stage))
    stage.sandbox.set_node_ready("gpu-2", True)
    await stage.rest(30)
    lines = await screen_of(stage)
    assert not any("not Ready" in line for line in lines)
    assert any(line.startswith("operands  all ") for line in lines)
