"""A node whose new driver does not get ready comes to an NVIDIADriver that asks for the same one: people see that it failed."""

from __future__ import annotations

import pytest

from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from kubesandbox.sim.faults import Fault
from tests.journeys.looking import headline_of, row_of
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, set_driver


async def begins(stage: Stage) -> str:
    """Wait until a node has a new driver that does not get ready, for a part of the time that it has; return the node."""
    await stage.until(lambda: "DriverStarting" in map(stage.hold, stage.states()))
    await stage.rest(200)
    (node,) = (name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED)
    return node


async def comes_from_the_cluster_policy(stage: Stage) -> str:
    await stage.installed()
    await stage.upgrade_to(NEW)
    node = await begins(stage)
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    return node


async def comes_from_another_one(stage: Stage) -> str:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, a="gpu-1 gpu-2 gpu-3")
    await make(stage, nvidia_driver("a"), nvidia_driver("b"))
    await stage.installed()
    stage.watch_limits()
    await set_driver(stage, "b", {"version": NEW})
    await set_driver(stage, "a", {"version": NEW})
    node = await begins(stage)
    await label_pools(stage, b="gpu-1 gpu-2 gpu-3")
    return node


@pytest.mark.parametrize("comes", [comes_from_the_cluster_policy, comes_from_another_one])
def test_a_node_that_comes_with_a_driver_that_does_not_get_ready_is_seen_to_fail(comes: object) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.user.create(resources.ROLLOUT_POLICIES, {
            "apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
            "spec": {"deadlines": {"pod-restart-required": "10m"}, "retries": 1}})
        stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, image=f"*{NEW}*"))
        assert callable(comes)
        node = await comes(stage)
        before = {pod["metadata"]["uid"] for pod in driver_pods(stage, node)}
        await stage.until(lambda: State.FAILED in stage.entered(node), within=900)
        await stage.rest(5)
        (pod,) = driver_pods(stage, node)
        assert pod["metadata"]["uid"] not in before, "it has the pod of the NVIDIADriver"
        assert (stage.state(node), stage.hold(node)) == (State.FAILED, "RetryLater")
        assert f"still waits for driver pod {pod['metadata']['name']} to get ready" in (await row_of(stage, node)).reason
        assert "1 failed" in await headline_of(stage)
        assert stage.operator.plan.counts.failed == 1
        await stage.until(lambda: stage.hold(node) == "Failed", within=3600)
        assert stage.entered(node).count(State.FAILED) == 2, "it is tried again as often as it may be"
        (told,) = stage.events(node, "Warning")[-1:]
        assert told.startswith("Failed: failed in pod-restart-required: still waits for driver pod ")

    scenario()
