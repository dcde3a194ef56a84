"""From nothing to a GPU stack that runs, and then silence."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.model.states import State
from tests.journeys.stage import OLD, Stage, on_stage


@on_stage(gpu_nodes=3)
async def test_a_stack_comes_up_from_nothing(stage: Stage) -> None:
    await stage.installed()
    assert stage.all_are(State.DONE)
    assert stage.drivers() == [OLD]
    assert stage.cordons() == []
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        labels = stage.labels(node)
        assert labels[names.GPU_PRESENT] == "true"
        assert labels[names.DEPLOY_DRIVER] == "true"
        assert stage.node(node)["metadata"]["annotations"][names.UPGRADE_ENABLED] == "true"
    assert names.GPU_PRESENT not in stage.labels("cpu-1")
    assert stage.condition()["type"] == "Ready"
    assert stage.condition()["reason"] == "Reconciled"


@on_stage(gpu_nodes=2)
async def test_the_operands_start_in_the_order_of_their_needs(stage: Stage) -> None:
    await stage.installed()
    ready = {pod["metadata"]["labels"]["app"]: _ready_since(pod) for pod in stage.pods(node="gpu-1")
             if pod["metadata"]["labels"].get("app")}
    order = ["nvidia-driver-daemonset", "nvidia-device-plugin-daemonset", "nvidia-operator-validator"]
    assert [ready[app] for app in order] == sorted(ready[app] for app in order)
    assert ready["nvidia-driver-daemonset"] < ready["gpu-feature-discovery"]


def _ready_since(pod: dict[str, Any]) -> str:
    return next(str(one["lastTransitionTime"]) for one in pod["status"]["conditions"] if one["type"] == "Ready")


@pytest.mark.weakness(39)
@on_stage(gpu_nodes=3)
async def test_an_idle_operator_asks_for_nothing(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    before = dict(stage.client.stats.requests)
    await stage.rest(600)
    after = {key: count for key, count in stage.client.stats.requests.items() if key.verb != "watch"}
    assert after == {key: count for key, count in before.items() if key.verb != "watch"}
