"""More ways in which another driver could come under pods whose driver pod is gone: what people delete, switch and relabel.

As in `test_withheld`, the pods that count have GPUs and none of them open. Others keep the modules loaded while driver pods go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, driver_pods, label_pools, make, nvidia_driver
from tests.journeys.test_withheld import at_rest, restarting, set_driver, torn, with_notebooks

NONE_MAY_START = {"maxUnavailable": 0}


async def with_holders(stage: Stage) -> None:
    """Run notebooks, and beside them pods that have the GPUs open."""
    await with_notebooks(stage)
    for node in stage.states() or [each["metadata"]["name"] for each in stage.gpu_node_objects()]:
        await stage.deploy(f"train-{node}", node=node)


async def without_holders(stage: Stage) -> None:
    """Let only notebooks run on."""
    def stop(deployment: dict[str, Any]) -> None:
        deployment["spec"]["replicas"] = 0

    for node in stage.gpu_node_objects():
        stage.sandbox.store.modify("deployments.apps", WORKLOAD_NAMESPACE, f"train-{node['metadata']['name']}", stop)
    await stage.until(lambda: not any(pod["metadata"]["name"].startswith("train") for pod in stage.workload_pods()))


async def switched_off(stage: Stage) -> None:
    """Switch drivers off, and leave notebooks on the modules."""
    await stage.installed()
    await with_holders(stage)
    await stage.switch_off_at_once()
    await stage.until(lambda: not driver_pods(stage))
    await without_holders(stage)


@pytest.mark.parametrize("how", ["Foreground", "Background", "Orphan"])
@pytest.mark.parametrize("mode", ["plain", "precompiled", "nvidiadriver"])
def test_driver_daemonsets_that_are_deleted_in_mid_rollout_come_back_under_no_pod(mode: str, how: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        if mode == "nvidiadriver":
            await label_pools(stage, a="gpu-1 gpu-2")
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("a"))
        if mode == "precompiled":
            await set_driver(stage, {"usePrecompiled": True, "version": "580"})
        await stage.installed()
        await with_holders(stage)
        wanted = {"version": "590" if mode == "precompiled" else NEW, "upgradePolicy": NONE_MAY_START}
        if mode == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": wanted})
        else:
            await set_driver(stage, wanted)
        await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
        for each in stage.sandbox.store.list("daemonsets.apps", names.DEFAULT_NAMESPACE):
            if "driver" in each["metadata"]["name"]:
                await stage.user.delete(
                    resources.DAEMON_SETS, each["metadata"]["name"], names.DEFAULT_NAMESPACE, propagation=how)
        await stage.rest(10)
        await without_holders(stage)
        await stage.rest(600)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("gap", [0.0, 0.2, 1.0])
def test_drivers_that_are_switched_off_and_on_within_moments_come_under_no_pod(gap: float) -> None:
    @on_stage(gpu_nodes=2, upgrade=NONE_MAY_START)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_holders(stage)
        await stage.switch_off_at_once()
        await stage.rest(gap)
        await set_driver(stage, {"enabled": True, "version": NEW})
        await stage.rest(20)
        await without_holders(stage)
        await stage.rest(300)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("kind", [errors.Forbidden, errors.ServerError, errors.Invalid])
def test_one_refused_change_of_a_node_lets_no_driver_come(kind: type[errors.ApiError]) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await switched_off(stage)
        refused: list[Request] = []

        def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            if request.method == "PATCH" and request.path == "/api/v1/nodes/gpu-1" and not refused:
                refused.append(request)
                return refusal(kind("webhook failed"))
            return proceed()

        stage.transport.interfere = interfere
        await set_driver(stage, {"enabled": True, "version": NEW, "upgradePolicy": NONE_MAY_START})
        await stage.rest(300)
        assert (len(refused), torn(stage)) == (1, [])

    story()


@pytest.mark.parametrize("made", ["", "a", "default"])
def test_nodes_that_wait_for_their_driver_go_on_waiting_when_drivers_are_left_to_nvidiadrivers(made: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await switched_off(stage)
        await set_driver(stage, {"enabled": True, "version": NEW, "upgradePolicy": NONE_MAY_START})
        await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
        if made:
            more = {"default": True} if made == "default" else {}
            await make(stage, nvidia_driver(made, NONE_MAY_START, version=NEW, **more))
        await set_driver(stage, {"useNvidiaDriverCRD": True})
        await stage.rest(300)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("fast", [0.2, 1.0])
def test_a_notebook_that_is_restarted_on_a_node_that_waits_for_its_driver_keeps_what_is_loaded(fast: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await switched_off(stage)
        await set_driver(stage, {"enabled": True, "version": NEW, "upgradePolicy": NONE_MAY_START})
        await stage.until(lambda: stage.hold("gpu-1") == "NoNodeMayStart")
        stage.sandbox.delays.pod_start_seconds = 3
        for pod in stage.workload_pods(node="gpu-1"):
            await stage.user.delete(resources.PODS, pod["metadata"]["name"], WORKLOAD_NAMESPACE)
        await stage.rest(0.2)
        stage.sandbox.delays.pod_start_seconds = fast + 1.5
        await stage.rest(300)
        assert (torn(stage), stage.cordons()) == ([], [])

    story()


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_node_that_is_labelled_for_another_pool_as_its_driver_pod_is_deleted_waits_for_its_turn(late: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1", b="gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a"), nvidia_driver("b", NONE_MAY_START, version=NEW))
        await stage.installed()
        await with_notebooks(stage)
        await stage.rest(60)
        await stage.user.delete(resources.PODS, driver_pods(stage, "gpu-1")[0]["metadata"]["name"], names.DEFAULT_NAMESPACE)
        await stage.rest(late)
        await stage.label("gpu-1", "pool", "b")
        await stage.rest(300)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("gap", [0.5, 2, 120])
def test_a_switch_to_nvidiadrivers_in_mid_upgrade_and_back_brings_no_pods_before_the_driver(gap: float) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: restarting(stage))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.rest(gap)
        await stage.patch_policy("driver/useNvidiaDriverCRD", False)
        await stage.until(lambda: torn(stage) or (stage.finished() and not stage.cordons()), within=3600)
        assert torn(stage) == []

    story()


@pytest.mark.parametrize("how", ["Background", "Orphan"])
def test_a_node_that_is_emptied_for_an_nvidiadriver_that_goes_is_back_in_service(how: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        stage.sandbox.delays.termination_seconds = 20
        await make(stage, nvidia_driver("default", default=True, version=NEW))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await stage.until(lambda: State.POD_DELETION_REQUIRED in stage.states().values())
        await stage.remove_at_once()
        await stage.user.delete(resources.NVIDIA_DRIVERS, "default", propagation=how)
        stage.sandbox.delays.termination_seconds = 2
        await stage.rest(600)
        assert (stage.cordons(), torn(stage), len(driver_pods(stage))) == ([], [], 2)

    story()


@pytest.mark.parametrize("kind", ["gpu", "vgpu"])
def test_a_driver_pod_whose_component_label_somebody_edits_is_a_driver_pod_still(kind: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ALL_AT_ONCE, driverType=kind))
        await stage.installed()
        await with_notebooks(stage)
        pod = driver_pods(stage, "gpu-1")[0]["metadata"]
        await stage.user.patch_merge(resources.PODS, pod["name"], {"metadata": {"labels": {names.COMPONENT_LABEL: "TRUE"}}},
                                     namespace=pod["namespace"])
        await stage.rest(60)
        assert stage.hold("gpu-1") == "", "it has its driver pod"
        await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "a", {"spec": {"version": NEW}})
        await at_rest(stage, NEW)

    story()
