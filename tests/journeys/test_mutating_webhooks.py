"""Admission webhooks that change what gpuward writes, as policy engines do with every workload."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from gpuward import names
from gpuward.kube import resources
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import row_of
from tests.journeys.stage import NEW, OLD, Object, Stage, on_stage
from tests.journeys.test_images import BAD, WithRegistry

Mutation = Callable[[Object], object]
PROXY = {"name": "proxy", "image": "registry.example/proxy:1.9.2"}


def proxy_first(pod: Object) -> None:
    pod["containers"].insert(0, PROXY)


def from_a_mirror(pod: Object) -> None:
    for container in (*pod["initContainers"], *pod["containers"]):
        container["image"] = container["image"].replace("nvcr.io/", "mirror.example/")


def tolerated(pod: Object) -> None:
    pod["tolerations"].append({"key": "spot", "operator": "Exists"})


def behind(stage: Stage, mutation: Mutation) -> list[str]:
    """Let a webhook change the driver's DaemonSet with every write of it; return the methods of these, as they come."""
    written: list[str] = []

    def webhook(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        body = json.loads(request.body) if request.method in ("POST", "PUT") and "/daemonsets" in request.path else {}
        if body.get("metadata", {}).get("name") != names.DRIVER_APP:
            return proceed()
        written.append(request.method)
        mutation(body["spec"]["template"]["spec"])
        object.__setattr__(request, "body", msgspec.json.encode(body))
        return proceed()

    stage.transport.interfere = webhook
    return written


@pytest.mark.parametrize("mutation", [proxy_first, from_a_mirror, tolerated])
def test_a_mutated_driver_is_written_once_and_rolled_out(mutation: Mutation) -> None:
    @on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
    async def story(stage: Stage) -> None:
        written = behind(stage, mutation)
        await stage.installed()
        for node in stage.states():
            stage.run_pod(f"training-{node}", node, owned=True)
        await stage.rest(900)
        assert written == ["POST"]
        await stage.restart_operator()
        await stage.rest(900)
        assert (len(stage.workload_pods()), len(written)) == (2, 2)
        await stage.upgrade_to()
        await stage.upgraded()
        assert stage.cordons() == []
        assert (await row_of(stage, "gpu-1")).driver == NEW

    story()


@on_stage(gpu_nodes=2, kind=WithRegistry)
async def test_the_image_of_the_driver_is_asked_for_and_not_that_of_a_container_put_before_it(stage: Stage) -> None:
    behind(stage, proxy_first)
    await stage.installed()
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", {"spec": {"driver": {"version": BAD}}})
    await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"ImageMissing"}, 60)
    await stage.rest(600)
    assert (stage.drivers(), stage.cordons()) == ([OLD], [])
