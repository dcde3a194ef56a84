"""Nodes that share GPUs by MPS: another template of the daemon comes to each once no pod uses its GPUs.

Judged from the pods that are there.
"""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.journeys.looking import screen_of
from tests.journeys.stage import Object, Stage, on_stage

SHARING = ("gpu-1", "gpu-2")
NEW = "v0.20.1"


def daemons(stage: Stage) -> dict[str, Object]:
    """Return the pods of the daemon, by node."""
    return {pod["spec"].get("nodeName", ""): pod for pod in stage.pods(names.MPS_DAEMON_APP)}


def version(pod: Object | None) -> str:
    return "" if pod is None else str(pod["spec"]["containers"][0]["image"].rpartition(":")[2])


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def strategy(stage: Stage) -> Any:
    (ds,) = [ds for ds in stage.sandbox.store.list("daemonsets.apps") if ds["metadata"]["name"] == names.MPS_DAEMON_APP]
    return ds["spec"].get("updateStrategy", {}).get("type", "RollingUpdate")


async def shared(stage: Stage) -> None:
    """Have two nodes share their GPUs."""
    await stage.until(lambda: stage.policy_status().get("state") == "ready")
    for node in SHARING:
        await stage.label(node, names.MPS_CAPABLE, "true")
    await stage.until(lambda: set(daemons(stage)) == set(SHARING))


@on_stage(gpu_nodes=3)
async def test_another_version_of_the_daemon_comes_to_each_node_once_nobody_uses_its_gpus(stage: Stage) -> None:
    await shared(stage)
    stage.run_pod("training", "gpu-1")
    before = daemons(stage)
    await stage.patch_policy("devicePlugin/version", NEW)
    await stage.until(lambda: version(daemons(stage).get("gpu-2")) == NEW)
    await stage.rest(1800)
    assert uid(daemons(stage)["gpu-1"]) == uid(before["gpu-1"])
    assert [version(pod) for pod in stage.pods("nvidia-device-plugin-daemonset")] == [NEW] * 3, "nobody's contexts end with these"
    told = "1 of 2 pods have an older template; that on gpu-1 is used by pod ml/training"
    assert f"  mps-control-daemon 2/2  {told}" in await screen_of(stage)
    assert f"{names.MPS_DAEMON_APP}: {told}" in stage.policy_status()["conditions"][0]["message"]
    await stage.user.delete(resources.PODS, "training", WORKLOAD_NAMESPACE)
    await stage.until(lambda: strategy(stage) == "RollingUpdate" and stage.policy_status()["state"] == "ready")
    assert [version(pod) for pod in daemons(stage).values()] == [NEW, NEW]
    assert not any(moment.cordoned for moment in stage.history)


@on_stage(gpu_nodes=3, delays=GpuDelays(reaction_seconds=1.0))
async def test_where_no_pod_uses_gpus_it_is_as_with_nvidias(stage: Stage) -> None:
    await shared(stage)
    offered = []
    stage.sandbox.store.subscribe(lambda event: offered.append(event.obj["metadata"]["labels"].get(names.DEPLOY_PLUGIN)), "nodes")
    await stage.patch_policy("devicePlugin/version", NEW)
    await stage.until(lambda: [version(pod) for pod in daemons(stage).values()] == [NEW, NEW])
    await stage.until(lambda: strategy(stage) == "RollingUpdate" and stage.policy_status()["state"] == "ready")
    assert {*offered} <= {"true"}, "the nodes go on offering their GPUs"
    assert not any(moment.cordoned for moment in stage.history)


@on_stage(gpu_nodes=3)
async def test_a_node_that_is_upgraded_meanwhile_gets_it_with_its_driver(stage: Stage) -> None:
    await shared(stage)
    await stage.deploy("training", 1, node="gpu-1")
    await stage.patch_policy("devicePlugin/version", NEW)
    await stage.until(lambda: version(daemons(stage).get("gpu-2")) == NEW)
    await stage.upgrade_to()
    await stage.upgraded()
    await stage.until(lambda: version(daemons(stage).get("gpu-1")) == NEW)
    await stage.until(lambda: strategy(stage) == "RollingUpdate" and stage.policy_status()["state"] == "ready")
