"""GPU workloads on nodes whose driver is upgraded: evicted within their budgets, never under their feet."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube.http.stats import RequestKey
from gpuward.model.explain import arguments
from gpuward.model.states import State
from gpuward.sandbox.fleet import workloads
from kubesandbox.sim.objects import is_ready
from kubesandbox.store import Event
from tests.journeys.stage import NEW, OLD, Stage, blind_to_budgets, on_stage

ALL = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}
EVICTED = RequestKey("create", "pods/eviction", 201)
REFUSED = RequestKey("create", "pods/eviction", 429)


@on_stage(gpu_nodes=3, upgrade=ALL | {"maxParallelUpgrades": 1})
async def test_a_budget_is_kept_while_all_its_pods_move(stage: Stage) -> None:
    await stage.installed()
    for obj in workloads(inference=6, training=0, web=2, max_unavailable=1):
        stage.sandbox.apply(obj)
    await stage.until(lambda: len(ready(stage, "inference")) == 6 and len(ready(stage, "web")) == 2)
    fewest = 6

    def count(_: Event) -> None:
        nonlocal fewest
        going = [pod for pod in ready(stage, "inference") if not pod["metadata"].get("deletionTimestamp")]
        fewest = min(fewest, len(going))

    stop = stage.sandbox.store.subscribe(count, "pods")
    before = {pod["metadata"]["uid"] for pod in stage.workload_pods("web")}
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    stop()
    assert fewest == 5
    assert stage.client.stats.requests[EVICTED] >= 6
    assert {pod["metadata"]["uid"] for pod in stage.workload_pods("web")} == before, "pods without GPUs stay where they are"


def ready(stage: Stage, app: str) -> list[dict[str, Any]]:
    return [pod for pod in stage.workload_pods(app) if is_ready(pod)]


@pytest.mark.weakness(42)
@on_stage(gpu_nodes=2, upgrade=ALL | {"podDeletion": {"timeoutSeconds": 0}}, interfere=blind_to_budgets)
async def test_refused_evictions_back_off_from_two_seconds_to_half_a_minute(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    begun = stage.clock.now()
    seen: list[int] = []
    for seconds in (1, 4, 9, 25, 31.5, 62, 122):
        await stage.rest(begun + seconds - stage.clock.now())
        seen.append(stage.client.stats.requests[REFUSED])
    assert seen == [1, 2, 3, 4, 5, 6, 8], "after 0, 2, 6, 14, 30, 60, 90 and 120 seconds"
    assert stage.client.stats.requests[EVICTED] == 0
    hold = stage.operator.plan.holds["gpu-1"]
    assert arguments(hold.what)["attempts"] == 8
    assert str(arguments(hold.what)["pod"]).startswith("ml/inference-")
    assert stage.state("gpu-2") == State.DONE
    stage.set_budget("inference", 1)
    await stage.upgraded(within=120)


@on_stage(gpu_nodes=2, upgrade=ALL, interfere=blind_to_budgets)
async def test_a_budget_that_never_gives_way_fails_its_node_and_nothing_else(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    pod = stage.workload_pods("inference")[0]["metadata"]["name"]
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    assert not stage.cordoned("gpu-1"), "its driver was not touched: it serves on"
    assert stage.driver("gpu-1") == OLD
    assert any("after 300 s" in text and pod in text for text in stage.events("gpu-1", "Warning"))
    assert stage.warnings("Node is held", node="gpu-1")
    await stage.rest(3600)
    assert stage.states() == {"gpu-1": "upgrade-failed", "gpu-2": "upgrade-done"}
    stage.set_budget("inference", 1)
    await stage.label("gpu-1", names.UPGRADE_STATE, "upgrade-required")
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade=ALL)
async def test_a_node_whose_pods_may_not_go_is_held_before_it_is_cordoned_and_goes_on_by_itself(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.states() == {"gpu-1": "upgrade-required", "gpu-2": "upgrade-done", "gpu-3": "upgrade-done"})
    await stage.rest(3600)
    assert stage.hold("gpu-1") == "BudgetBlocks"
    assert arguments(stage.operator.plan.holds["gpu-1"].what)["budget"] == "ml/inference"
    assert not stage.cordoned("gpu-1")
    assert stage.client.stats.requests[REFUSED] == 0
    stage.set_budget("inference", 1)
    await stage.until(lambda: stage.cordoned("gpu-1"), within=2)
    await stage.upgraded()


@pytest.mark.weakness(43)
@on_stage(gpu_nodes=4, upgrade=ALL)
async def test_without_limits_a_budget_still_keeps_room_for_the_pods_that_move(stage: Stage) -> None:
    """Cordoning every node at once left the evicted pods no place to go, and no budget to evict the others under."""
    await stage.installed()
    await stage.deploy("inference", 8, max_unavailable=2)
    await stage.upgrade_to(NEW)
    await stage.upgraded(within=900)
    assert State.FAILED not in {state for node in stage.states() for state in stage.entered(node)}


def _slow_pods(resource: str) -> float:
    return 5.0 if resource == "pods" else 0.01


@on_stage(gpu_nodes=1, upgrade=ALL, watch_delay=_slow_pods)
async def test_a_gpu_pod_that_appears_just_before_the_driver_goes_is_evicted_first(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(30)
    used_while_replaced: list[str] = []
    started: list[object] = []

    def late(event: Event) -> None:
        if event.obj["metadata"]["labels"].get(names.UPGRADE_STATE) == State.POD_RESTART_REQUIRED and not started:
            started.append(stage.run_pod("late", "gpu-1", owned=True))

    def driver_goes(event: Event) -> None:
        meta = event.obj["metadata"]
        if (meta.get("labels") or {}).get("app") == names.DRIVER_APP and meta.get("deletionTimestamp"):
            used_while_replaced.extend(pod["metadata"]["name"] for pod in stage.workload_pods("late"))

    stage.sandbox.store.subscribe(late, "nodes")
    stage.sandbox.store.subscribe(driver_goes, "pods")
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert started
    assert used_while_replaced == []
    assert stage.client.stats.requests[EVICTED] == 1
    assert State.POD_DELETION_REQUIRED in stage.entered("gpu-1")[stage.entered("gpu-1").index(State.POD_RESTART_REQUIRED):]


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_a_pod_that_nobody_would_start_again_holds_its_node_before_the_cordon(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("notebook", "gpu-1")
    await stage.until(lambda: ready(stage, "notebook"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-2") == State.DONE and stage.driver("gpu-2") == NEW)
    await stage.rest(300)
    assert stage.state("gpu-1") == State.UPGRADE_REQUIRED
    assert not stage.cordoned("gpu-1")
    warnings = stage.warnings("Node is held", node="gpu-1")
    assert len(warnings) == 1
    assert "ml/notebook" in warnings[0]["reason"]
    assert "upgradePolicy.podDeletion.force" in warnings[0]["reason"]
    stage.sandbox.store.delete("pods", "ml", "notebook")
    await stage.upgraded()


@on_stage(gpu_nodes=1, upgrade=ALL | {"waitForCompletion": {"podSelector": "app=training", "timeoutSeconds": 0}})
async def test_jobs_that_the_policy_lets_finish_are_waited_for(stage: Stage) -> None:
    await stage.installed()
    for obj in workloads(inference=0, training=1, web=0, training_seconds=400):
        stage.sandbox.apply(obj)
    await stage.until(lambda: ready(stage, "training"))
    job = stage.workload_pods("training")[0]["metadata"]["uid"]
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "JobsRunning")
    await stage.upgraded()
    pod = next(pod for pod in stage.workload_pods("training") if pod["metadata"]["uid"] == job)
    assert pod["status"]["phase"] == "Succeeded"
    assert stage.client.stats.requests[EVICTED] == 0


@on_stage(gpu_nodes=2, upgrade=ALL | {"drain": {"enable": True, "force": True}})
async def test_a_drain_takes_what_the_eviction_of_gpu_pods_may_not(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("notebook", "gpu-1")
    await stage.until(lambda: ready(stage, "notebook"))
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert stage.workload_pods("notebook") == []
    assert State.DRAIN_REQUIRED in stage.entered("gpu-1")
    assert State.DRAIN_REQUIRED not in stage.entered("gpu-2")
    assert stage.cordons() == []
