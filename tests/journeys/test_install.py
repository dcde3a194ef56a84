"""From nothing to a GPU stack that runs, and then silence."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from gpuward import names
from gpuward.errors import NotFound
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import OLD, Proceed, Stage, on_stage


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


async def asked(stage: Stage, seconds: float) -> dict[str, int]:
    """Return what is asked of the API server, watches aside, in so many seconds from now."""
    before = stage.client.stats.requests.copy()
    await stage.rest(seconds)
    return {f"{key.verb} {key.resource}": count for key, count in (stage.client.stats.requests - before).items()
            if key.verb != "watch"}


@pytest.mark.weakness(39)
@on_stage(gpu_nodes=3)
async def test_an_idle_operator_asks_for_nothing(stage: Stage) -> None:
    await stage.installed()
    await stage.rest(60)
    assert await asked(stage, 600) == {}


def without_claims(request: Request, proceed: Proceed) -> Answer | Stream:
    """Be an API server that is too old for ResourceClaims."""
    if request.path.endswith("/resourceclaims"):
        return refusal(NotFound("the server could not find the requested resource"))
    return proceed()


@on_stage(gpu_nodes=1, interfere=without_claims)
async def test_an_idle_operator_asks_hardly_ever_whether_what_is_not_installed_has_come(stage: Stage) -> None:
    for resource in (resources.ROLLOUT_POLICIES, resources.NVIDIA_DRIVERS):
        await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, str(resource))
    with structlog.testing.capture_logs() as log:
        await stage.restart_operator()
        await stage.installed()
        await stage.rest(60)
    assert await asked(stage, 1800) in [{"list resourceclaims.resource.k8s.io": count} for count in (2, 3)]
    assert {line["event"] for line in log if line["log_level"] != "debug" and line.get("resource")} == {
        "Not installed: drivers are the ClusterPolicy's", "Not installed: gpuward's own settings have their defaults",
        "Not installed: pods with a claim count as users of GPUs"}
