"""NVIDIA's driver manager while upgrades are off: it cordons its node and evicts the GPU pods. What becomes of that cordon where
another driver is asked for, and upgrades are on again, before it has come to its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from kubesandbox.sim.objects import is_terminating
from kubesandbox.store import Event
from tests.journeys.stage import NEW, POLICY, Stage, on_stage
from tests.journeys.test_cleanup import POLICIES, cleanup
from tests.journeys.test_cordoned_by_others import cordon_as
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_moves import be_precompiled, with_one_owner, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, set_driver
from tests.journeys.test_operand_fails import explained
from tests.journeys.test_withheld import torn

NEXT = "595.91.09"
Ask = Callable[[Stage, str, bool], Awaitable[None]]


async def of_policy(stage: Stage, version: str, automatic: bool) -> None:
    spec = {"version": version, "upgradePolicy": {"autoUpgrade": automatic}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": spec}})


async def of_nvidia_driver(stage: Stage, version: str, automatic: bool) -> None:
    await set_driver(stage, "default", {"version": version, "upgradePolicy": {"autoUpgrade": automatic}})


async def replaced(stage: Stage) -> None:
    """Delete the driver pod, as a person would."""
    (pod,) = driver_pods(stage, "gpu-1")
    await stage.user.delete(resources.PODS, pod["metadata"]["name"], names.DEFAULT_NAMESPACE)


async def are_slow_to_end(stage: Stage) -> None:
    """Let workloads keep a driver manager at work until a new driver has settled."""
    for pod in stage.workload_pods():
        slow = {"metadata": {"annotations": {TERMINATION_SECONDS: "20"}}}
        await stage.user.patch_merge(resources.PODS, pod["metadata"]["name"], slow, pod["metadata"]["namespace"])


async def draining(stage: Stage, ask: Ask, *, version: str = NEW) -> None:
    """Have a driver pod replaced by hand while upgrades are off, until its driver manager has cordoned the node."""
    if ask is of_nvidia_driver:
        await with_one_owner(stage)
    else:
        await stage.installed()
        await with_workloads(stage)
    await are_slow_to_end(stage)
    await ask(stage, version, False)
    await stage.rest(30)
    await replaced(stage)
    await stage.until(lambda: stage.cordoned("gpu-1"))


async def brought_about(stage: Stage, version: str) -> None:
    await stage.until(lambda: stage.finished(version) and rollout(stage)[:2] == ("True", "UpToDate"), within=3600)
    await stage.rest(60)
    assert (stage.cordons(), torn(stage)) == ([], [])


@pytest.mark.parametrize("ask", [of_policy, of_nvidia_driver])
@pytest.mark.parametrize("gap", [0.0, 1.0, 2.05])
def test_an_upgrade_that_begins_meanwhile_lifts_the_cordon(ask: Ask, gap: float) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await draining(stage, ask)
        assert "by the driver manager: it lifts it" in (await explained(stage))["CORDONED"]
        await stage.rest(gap)
        await ask(stage, NEXT, True)
        await brought_about(stage, NEXT)

    story()


@on_stage(gpu_nodes=2)
async def test_an_upgrade_to_precompiled_drivers_that_begins_meanwhile_lifts_the_cordon(stage: Stage) -> None:
    await be_precompiled(stage)
    await with_workloads(stage)
    await of_policy(stage, "590", False)
    await stage.rest(30)
    await replaced(stage)
    await stage.until(lambda: stage.cordoned("gpu-1"))
    await of_policy(stage, "595", True)
    await brought_about(stage, "595")


@on_stage(gpu_nodes=2)
async def test_its_driver_pod_stays_until_it_has_ended_while_upgrades_stay_off(stage: Stage) -> None:
    """Nothing has to be evicted any more, and the pod is out of date: one in which nothing has begun would be replaced."""
    await draining(stage, of_policy)
    await stage.until(lambda: not stage.workload_pods(node="gpu-1"))
    assert stage.cordoned("gpu-1")
    (pod,) = driver_pods(stage, "gpu-1")
    under_cordon: list[str] = []

    def saw(event: Event) -> None:
        if event.obj["metadata"]["uid"] == pod["metadata"]["uid"] and is_terminating(event.obj) and stage.cordoned("gpu-1"):
            under_cordon.append(event.obj["metadata"]["name"])
    stage.sandbox.store.subscribe(saw, "pods")
    await of_policy(stage, NEXT, False)
    await stage.until(lambda: not stage.cordons())
    await stage.until(lambda: stage.driver("gpu-1") in (NEW, NEXT))
    await stage.rest(60)
    assert (stage.cordons(), under_cordon) == ([], [])


@pytest.mark.parametrize("ask", [of_policy, of_nvidia_driver])
def test_the_cordon_of_one_that_was_killed_goes_once_the_next_has_brought_a_driver(ask: Ask) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await draining(stage, ask)
        await replaced(stage)
        await ask(stage, NEW, True)
        await brought_about(stage, NEW)

    story()


@on_stage(gpu_nodes=2)
async def test_a_node_that_is_to_have_no_driver_meanwhile_is_given_back(stage: Stage) -> None:
    await draining(stage, of_policy)
    await stage.label("gpu-1", names.DEPLOY_OPERANDS, "false")
    await stage.until(lambda: not stage.pods("nvidia-driver-daemonset", "gpu-1"))
    await stage.until(lambda: not stage.cordons())
    assert torn(stage) == []


async def switch_off(stage: Stage) -> None:
    await stage.patch_policy("driver/enabled", False)


async def have_its_own(stage: Stage) -> None:
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")


async def delete_its_driver(stage: Stage) -> None:
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")


@pytest.mark.parametrize(
    ("ask", "end"), [(of_policy, switch_off), (of_policy, have_its_own), (of_nvidia_driver, delete_its_driver)])
def test_operands_that_one_has_paused_come_back_where_no_other_comes(ask: Ask, end: Callable[[Stage], Awaitable[None]]) -> None:
    """NVIDIA's leaves no note of what it has paused; it is killed with its pod."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await draining(stage, ask)
        plugin = names.DEPLOY_PREFIX + "device-plugin"
        assert stage.labels("gpu-1")[plugin] == "paused-for-driver-upgrade"
        await end(stage)
        await stage.until(lambda: not driver_pods(stage, "gpu-1"))
        await stage.rest(60)
        assert (stage.labels("gpu-1")[plugin], torn(stage), stage.cordoned("gpu-1")) == ("true", [], False)
        assert names.DRIVER_MANAGER_PAUSE not in stage.sandbox.store.get("nodes", None, "gpu-1")["metadata"]["annotations"]

    story()


@on_stage(gpu_nodes=1)
async def test_a_cordon_that_a_person_made_before_stays(stage: Stage) -> None:
    await stage.installed()
    await with_workloads(stage)
    await are_slow_to_end(stage)
    await of_policy(stage, NEW, False)
    await stage.rest(30)
    cordon_as(stage, "gpu-1", "kubectl-cordon")
    await replaced(stage)
    await stage.until(lambda: not any("deletionTimestamp" not in pod["metadata"] for pod in stage.workload_pods(node="gpu-1")))
    await of_policy(stage, NEXT, True)
    await stage.until(lambda: stage.finished(NEXT), within=3600)
    await stage.rest(60)
    assert stage.cordons() == ["gpu-1"]
    assert "kubectl-cordon" in (await explained(stage))["CORDONED"]


@on_stage(gpu_nodes=2)
async def test_cleanup_lifts_the_cordon_of_one_that_ended_with_its_policy(stage: Stage) -> None:
    await draining(stage, of_policy)
    stage.sandbox.store.delete(POLICIES, None, POLICY, propagation="Background")
    await stage.until(lambda: not driver_pods(stage))
    await stage.rest(60)
    await stage.cordon("gpu-2")
    await stage.kill_operator()
    assert stage.cordons() == ["gpu-1", "gpu-2"]
    assert any(line.startswith("node gpu-1: ") and line.endswith(", uncordoned") for line in await cleanup(stage))
    assert stage.cordons() == ["gpu-2"]
