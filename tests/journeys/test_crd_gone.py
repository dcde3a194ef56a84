"""The CRD of NVIDIADrivers is deleted in mid-upgrade, and its objects a moment before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import explanation_of, headline_of, reason_of
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_leaving_in_mid_upgrade import by_nvidia_driver
from tests.journeys.test_node_workload import torn

DRIVERS = "nvidiadrivers.nvidia.com"


@on_stage(gpu_nodes=2)
async def test_a_node_whose_driver_is_untouched_goes_back_into_service_and_is_told_why(stage: Stage) -> None:
    await by_nvidia_driver(stage)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
    node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
    stage.sandbox.store.delete(DRIVERS, None, "default")
    await stage.rest(0.1)
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, DRIVERS)
    await stage.rest(600)
    assert (stage.driver(node), stage.cordons()) == (OLD, [])
    assert sentence(stage.operator.plan.holds[node]).endswith("which it does not while the CRD of NVIDIADrivers is missing")


@pytest.mark.parametrize("lost", [errors.Unanswered("no answer"), errors.Unreachable("connection reset by peer")])
def test_a_node_does_not_go_back_while_a_deletion_of_its_driver_pod_may_be_on_its_way(lost: errors.Unreachable) -> None:
    """Nobody waits for the answer any more, and the API server deletes the pod 40 s later."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        asked: list[Request] = []

        def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if asked or request.method != "DELETE" or "/nvidia-gpu-driver-" not in request.path:
                return proceed()
            asked.append(request)
            asyncio.get_running_loop().call_later(40, proceed)
            raise lost

        await by_nvidia_driver(stage)
        stage.transport.interfere = interfere
        while not asked:
            await stage.rest(0.1)
        node = next(name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
        stage.sandbox.store.delete(DRIVERS, None, "default")
        await stage.rest(0.1)
        await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, DRIVERS)
        await stage.rest(10)
        if not stage.cordons() and stage.pods(names.DEVICE_PLUGIN_APP, node):
            stage.run_pod("late", node, owned=True)
        await stage.rest(300)
        assert torn(stage) == []

    story()


@on_stage(gpu_nodes=2)
async def test_who_cannot_see_whose_nodes_are_is_not_told_that_no_driver_is_managed(stage: Stage) -> None:
    """The CRD is gone, and a user may just as well lack the right to list its objects."""
    await by_nvidia_driver(stage)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values(), within=900)
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, DRIVERS)
    await stage.rest(120)
    why = "NVIDIADrivers cannot be listed: the server could not find the requested resource"
    told = f"ClusterPolicy cluster-policy: it is not known how the drivers of nodes stand, as {why}"
    assert (await headline_of(stage)).startswith(told)
    for node in stage.states():
        assert reason_of(await explanation_of(stage, node)) == f"it is not known whether an NVIDIADriver is for it, as {why}"
