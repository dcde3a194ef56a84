"""A machine that dies first in a rollout: it holds itself, and the new driver, which never was there, is not blamed for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_failing import cause
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver
from tests.journeys.test_withheld import set_driver

TWO = {"maxUnavailable": 2, "maxParallelUpgrades": 1}
Disaster = Callable[[Stage], Awaitable[None]]


async def lost_as_its_driver_pod_stops(stage: Stage) -> None:
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.sandbox.disconnect("gpu-1")


async def lost_before_its_driver_pod_stops(stage: Stage) -> None:
    await stage.until(lambda: stage.state("gpu-1") not in (State.DONE, State.UPGRADE_REQUIRED))
    stage.sandbox.disconnect("gpu-1")


async def kept_by_a_finalizer(stage: Stage) -> None:
    old = stage.driver_pod("gpu-1")["metadata"]["name"]
    await stage.user.patch_merge(resources.PODS, old, {"metadata": {"finalizers": ["example.com/hold"]}}, names.DEFAULT_NAMESPACE)


@pytest.mark.parametrize("happens", [
    lost_as_its_driver_pod_stops, lost_before_its_driver_pod_stops, kept_by_a_finalizer], ids=lambda each: each.__name__)
def test_a_node_on_which_the_new_driver_never_was_holds_no_other(happens: Disaster) -> None:
    @on_stage(gpu_nodes=3, upgrade=TWO)
    async def play(stage: Stage) -> None:
        await stage.installed()
        if happens is kept_by_a_finalizer:
            await happens(stage)
            await stage.upgrade_to(NEW)
        else:
            await stage.upgrade_to(NEW)
            await happens(stage)
        await stage.until(lambda: cause(stage, "gpu-1"), 3600)
        lost = "" if happens is kept_by_a_finalizer else "the node is not Ready, "
        assert cause(stage, "gpu-1").startswith(f"{lost}still waits for driver pod")
        await stage.restart_operator()
        await stage.until(lambda: (stage.driver("gpu-2"), stage.driver("gpu-3")) == (NEW, NEW), 3600)
        if not lost:
            return
        stage.sandbox.reconnect("gpu-1")
        await stage.upgraded(within=7200)
        assert stage.cordons() == []

    play()


@pytest.mark.parametrize("owner", ["nvidiadriver", "precompiled"])
def test_nor_with_other_kinds_of_drivers(owner: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=TWO)
    async def play(stage: Stage) -> None:
        if owner == "nvidiadriver":
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", TWO, default=True))
        else:
            await set_driver(stage, {"usePrecompiled": True, "version": "580"})
        await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.all_are(State.DONE))
        before = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
        if owner == "nvidiadriver":
            await stage.user.patch_merge(resources.NVIDIA_DRIVERS, "default", {"spec": {"version": NEW}})
        else:
            await set_driver(stage, {"version": "590"})
        await lost_as_its_driver_pod_stops(stage)

        def others() -> set[str]:
            return {pod["metadata"]["uid"] for pod in driver_pods(stage) if pod["spec"]["nodeName"] != "gpu-1"}

        await stage.until(lambda: stage.state("gpu-2") == stage.state("gpu-3") == State.DONE and not others() & before, 7200)

    play()


@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_a_machine_that_dies_of_the_new_driver_holds_the_others(stage: Stage) -> None:
    """Whose kernel stops when the driver is loaded may be any other's fate."""
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.driver("gpu-1") == NEW)
    stage.sandbox.disconnect("gpu-1")
    await stage.rest(12 * 3600)
    assert {stage.hold("gpu-2"), stage.hold("gpu-3")} == {"NewDriverFails"}


@on_stage(gpu_nodes=3, upgrade=TWO)
async def test_a_daemonset_that_makes_no_pod_holds_the_others_and_the_driver_is_not_blamed(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    taint = {"key": "maintenance", "effect": "NoExecute"}
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": [taint]}})
    await stage.until(lambda: stage.hold("gpu-2") == "NewDriverFails", 3600)
    assert reason_of(await explanation_of(stage, "gpu-2")) == (
        "no more nodes start: none is up to date with the new driver yet, and node gpu-1 is in trouble with it: still waits for "
        "the DaemonSet to make a driver pod on this node, whose taint maintenance:NoExecute it does not tolerate, after 1800 s; "
        "see `gpuward explain gpu-1`, then correct what is wrong or let the rollout go on with `gpuward resume`")
