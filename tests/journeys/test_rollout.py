"""A rollout of another driver version, and how little it asks of the API server."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube.http.stats import RequestKey
from gpuward.model.states import State
from tests.journeys.stage import NEW, OLD, Stage, on_stage

ROUTE = ["upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required", "pod-restart-required",
         "validation-required", "uncordon-required", "upgrade-done"]


@pytest.mark.parametrize(("parallel", "unavailable", "most"), [
    (1, "100%", 1), (3, "100%", 3), (0, "100%", 5), (0, 2, 2), (3, "25%", 2), (1, None, 1),
])
def test_the_limits_hold_at_every_moment_and_are_used(parallel: int, unavailable: object, most: int) -> None:
    limits = {"maxParallelUpgrades": parallel} | ({"maxUnavailable": unavailable} if unavailable is not None else {})

    @on_stage(gpu_nodes=5, upgrade=limits)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.upgrade_to(NEW)
        await stage.upgraded()
        assert stage.most_in_progress == most
        assert stage.most_unavailable == most
        assert stage.cordons() == []

    play()


@pytest.mark.weakness(39, 40, 45)
@on_stage(gpu_nodes=4, upgrade={"maxParallelUpgrades": 2, "maxUnavailable": "100%"})
async def test_a_node_costs_seven_writes_one_event_per_state_and_two_reads(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    before = stage.client.stats.requests.copy()
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.rest(60)
    spent = stage.client.stats.requests - before
    nodes = _per_node(spent)
    assert nodes["writes"] <= 7, spent
    assert nodes["reads"] <= 2, f"a last look at its pods, and one at its new driver pod: {spent}"
    for node in stage.states():
        entered = [event for event in stage.events(node) if "node state label" in event][-len(ROUTE):]
        assert [event.rpartition(" ")[2] for event in entered] == ROUTE
    assert nodes["events"] == len(ROUTE) + 1 + 2 / 4, "its device plugin goes first; the policy has two: it begins, and it ends"


def _per_node(spent: Any, nodes: int = 4) -> dict[str, float]:
    shared = ("clusterpolicies.nvidia.com", "daemonsets.apps", "customresourcedefinitions.apiextensions.k8s.io", "configmaps")
    figures = {"writes": 0.0, "reads": 0.0, "events": 0.0}
    for key, count in spent.items():
        if key.resource.startswith(shared):
            continue
        kind = "events" if key.resource == "events" else "reads" if key.verb in ("get", "list") else "writes"
        if key.verb != "watch" and key.resource != "pods/eviction":
            figures[kind] += count / nodes
    return figures


@pytest.mark.weakness(39)
@on_stage(gpu_nodes=2)
async def test_a_rollout_costs_few_requests_beside_those_for_its_nodes(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    before = stage.client.stats.requests.copy()
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.rest(60)
    spent = stage.client.stats.requests - before
    assert spent[RequestKey("update", "daemonsets.apps", 200)] == 2, "a dry run, and the write"
    status = sum(count for key, count in spent.items() if key.resource == "clusterpolicies.nvidia.com/status")
    assert status <= 9, "one per ten seconds, and where a phase of the whole begins or ends"
    refused = [key for key in spent if key.status >= 400 or key.status == 0]
    assert {key.resource for key in refused} <= {"customresourcedefinitions.apiextensions.k8s.io"}, "no ServiceMonitors here"


@on_stage(gpu_nodes=3)
async def test_a_version_that_is_rolled_back_in_mid_rollout_leaves_nodes_alone(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.DONE in stage.entered("gpu-1") and stage.driver("gpu-1") == NEW)
    await stage.until(lambda: stage.state("gpu-2") == State.POD_RESTART_REQUIRED)
    pod = stage.driver_pod("gpu-3")["metadata"]["uid"]
    await stage.upgrade_to(OLD)
    await stage.upgraded(OLD)
    assert stage.driver_pod("gpu-3")["metadata"]["uid"] == pod, "its driver was never replaced"
    assert State.CORDON_REQUIRED not in stage.entered("gpu-3")
    assert stage.cordons() == []


@on_stage(gpu_nodes=2)
async def test_a_label_set_by_hand_restarts_the_driver_of_a_node_that_is_done(stage: Stage) -> None:
    await stage.installed()
    pods = {node: stage.driver_pod(node)["metadata"]["uid"] for node in stage.states()}
    stage.watch_limits()
    await stage.label("gpu-2", names.UPGRADE_STATE, "upgrade-required")
    await stage.until(lambda: State.VALIDATION_REQUIRED in stage.entered("gpu-2") and stage.all_are(State.DONE))
    assert stage.cordons() == []
    assert stage.driver_pod("gpu-1")["metadata"]["uid"] == pods["gpu-1"]
    assert stage.entered("gpu-1") == []
    validator = stage.pods(names.VALIDATOR_APP, "gpu-2")[0]
    assert validator["metadata"]["creationTimestamp"] > stage.driver_pod("gpu-2")["metadata"]["creationTimestamp"]


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
async def test_another_template_with_the_same_driver_restarts_it_without_evictions(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1")
    workload = stage.workload_pods("inference")[0]
    stage.watch_limits()
    await stage.patch_policy("daemonsets/priorityClassName", "system-cluster-critical")
    await stage.until(lambda: {pod["spec"].get("priorityClassName") for pod in stage.pods(names.DRIVER_APP)}
                      == {"system-cluster-critical"} and stage.all_are(State.DONE))
    assert State.POD_RESTART_REQUIRED in stage.entered("gpu-1")
    assert State.POD_DELETION_REQUIRED not in stage.entered("gpu-1")
    assert [pod["metadata"]["uid"] for pod in stage.workload_pods("inference")] == [workload["metadata"]["uid"]]
    assert stage.cordons() == []
    assert not stage.client.stats.total("create", "pods/eviction")


@pytest.mark.weakness(15)
@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
async def test_another_label_for_the_pods_restarts_no_driver(stage: Stage) -> None:
    await stage.installed()
    before = [pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)]
    await stage.patch_policy("daemonsets/labels", {"team": "ml"})
    await stage.until(lambda: stage.hold("gpu-1") == stage.hold("gpu-2") == "MetadataBehind")
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    assert [pod["metadata"]["uid"] for pod in stage.pods(names.DRIVER_APP)] == before
    assert stage.all_are(State.DONE)
