"""Pods that get their GPUs through ResourceClaims (DRA) on nodes whose driver is upgraded."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.objects import is_ready
from tests.journeys.stage import OLD, Stage, on_stage

CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
         "metadata": {"name": "gpus", "namespace": WORKLOAD_NAMESPACE},
         "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}


def allocate(stage: Stage, driver: str) -> None:
    result = {"request": "r", "driver": driver, "pool": "gpu-1", "device": "gpu-0"}
    stage.sandbox.store.patch_status("resourceclaims.resource.k8s.io", WORKLOAD_NAMESPACE, "gpus", lambda obj: obj.setdefault(
        "status", {}).update(allocation={"devices": {"results": [result]}}))


def pod_with_the_claim() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": WORKLOAD_NAMESPACE}, "spec": {
        "nodeName": "gpu-1", "containers": [{"name": "main", "image": "registry.example/work:1"}],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}]}}


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 0})
async def test_a_pod_with_a_claim_on_gpus_keeps_its_driver_until_the_claim_is_on_something_else(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.apply(CLAIM)
    allocate(stage, names.DRA_DRIVER)
    stage.sandbox.apply(pod_with_the_claim())
    await stage.upgrade_to()
    await stage.until(lambda: stage.hold("gpu-1") == "ProtectedPods" and stage.driver("gpu-2") != OLD)
    await stage.rest(300)
    assert stage.driver("gpu-1") == OLD
    assert not stage.cordoned("gpu-1")
    allocate(stage, "net.example.com")
    await stage.upgraded(within=300)
    assert stage.sandbox.store.find("pods", WORKLOAD_NAMESPACE, "train"), "it uses no GPU any more, so it stays"


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 0})
async def test_a_pod_that_asks_for_no_gpu_in_numbers_proves_no_driver(stage: Stage) -> None:
    await stage.installed()
    pod = pod_with_the_claim()
    pod["spec"].pop("resourceClaims")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0"}, "requests": {"nvidia.com/gpu": "0"}}
    stage.sandbox.apply(pod)
    await no_driver_is_taken_for_one(stage)


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 0})
async def test_a_claim_that_no_container_is_given_the_gpus_of_proves_no_driver(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.apply(CLAIM)
    allocate(stage, names.DRA_DRIVER)
    stage.sandbox.apply(pod_with_the_claim())
    await no_driver_is_taken_for_one(stage)


async def no_driver_is_taken_for_one(stage: Stage) -> None:
    """Take the driver from the machine on which the pod runs: no other node may start, as one may be out of service."""
    stage.sandbox.faults.add(Fault(FaultKind.DRIVER_NEVER_READY, node="gpu-1"))
    stage.sandbox.reboot("gpu-1")
    await stage.rest(60)
    assert stage.driver("gpu-1") == ""
    assert is_ready(stage.sandbox.store.get("pods", WORKLOAD_NAMESPACE, "train"))
    await stage.upgrade_to()
    await stage.rest(300)
    assert [stage.driver(node) for node in ("gpu-2", "gpu-3")] == [OLD, OLD], "the one node that may be out of service is gpu-1"
    assert stage.hold("gpu-2") == "NoNodeMayStart"


@pytest.mark.parametrize("known", [True, False])
def test_a_node_with_a_claim_stays_for_containers(known: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("sandboxWorkloads", {"enabled": True})
        await stage.rest(30)
        if known:
            stage.sandbox.apply(CLAIM)
            allocate(stage, names.DRA_DRIVER)
        stage.sandbox.apply(pod_with_the_claim())
        await stage.rest(5)
        for node in ("gpu-1", "gpu-2"):
            await stage.label(node, names.WORKLOAD_CONFIG, "vm-passthrough")
        await stage.until(lambda: stage.driver("gpu-2") != OLD)
        await stage.rest(300)
        assert (stage.driver("gpu-1"), stage.hold("gpu-1")) == (OLD, "WorkloadKept")

    scenario()
