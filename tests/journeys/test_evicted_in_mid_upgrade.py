"""The kubelet evicts the new driver pod of a node under way, again and again, as one that is low on disk does."""

from __future__ import annotations

import asyncio

from tests.journeys.looking import explanation_of, reason_of, screen_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods


async def evict_again_and_again(stage: Stage, node: str) -> None:
    while True:
        for pod in driver_pods(stage, node):
            if pod["status"]["phase"] in ("Pending", "Running") and not pod["metadata"].get("deletionTimestamp"):
                stage.sandbox.evict_for_shortage("gpu-operator", pod["metadata"]["name"])
        await asyncio.sleep(10)


@on_stage(gpu_nodes=2)
async def test_a_driver_pod_that_the_kubelet_has_evicted_is_said_to_be_so(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: any(pod["status"]["phase"] == "Running" and stage.driver("gpu-1") != NEW and not
                                  pod["metadata"].get("deletionTimestamp") for pod in driver_pods(stage, "gpu-1"))
                      and stage.state("gpu-1") == "pod-restart-required")
    evicting = asyncio.create_task(evict_again_and_again(stage, "gpu-1"))
    await stage.rest(1200)
    assert [pod["status"]["reason"] for pod in driver_pods(stage, "gpu-1")] == ["Evicted"]
    told = await explanation_of(stage, "gpu-1")
    assert "Evicted" in reason_of(told)
    assert any("Evicted" in line for line in await screen_of(stage))
    assert stage.hold("gpu-1") == "DriverFailing"
    evicting.cancel()
    await stage.upgraded(within=7200)
