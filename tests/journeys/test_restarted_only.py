"""Driver pods that are replaced by ones with the same driver: no GPU pod loses the driver that is loaded."""

from __future__ import annotations

from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.machine import DriverChange, Passage
from gpuward.sandbox.programs import OPENS_GPUS
from kubesandbox.builders import deployment
from tests.journeys.stage import POLICY, Stage, gpu_template, on_stage

ALL = {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}
CLIENTS = ("devicePlugin", "dcgm", "dcgmExporter", "gfd", "migManager", "nodeStatusExporter")


def torn(stage: Stage) -> list[Passage]:
    """Return the moments at which a driver's modules went from under GPU pods."""
    return [passage for passage in stage.sandbox.passages if passage.tore and passage.change is DriverChange.UNLOADED]


async def run_idle(stage: Stage) -> None:
    """Run a notebook on every node: it was given a GPU, and has none open."""
    template = gpu_template("notebook")
    template["metadata"]["annotations"] = {OPENS_GPUS: "false"}
    stage.sandbox.apply(deployment("notebook", WORKLOAD_NAMESPACE, stage.gpu_nodes, template))
    await stage.until(lambda: len([pod for pod in stage.workload_pods("notebook") if pod["status"].get("phase") == "Running"])
                      == stage.gpu_nodes)


async def restart_drivers(stage: Stage, **more: object) -> None:
    """Change what makes the same driver in another pod, and wait until every driver pod is one of that template."""
    spec = {"driver": {"resources": {"limits": {"memory": "3Gi"}}}, **more}
    before = {pod["metadata"]["uid"] for pod in stage.pods("nvidia-driver-daemonset")}
    stage.watch_limits()
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": spec})
    await stage.until(lambda: not before & {pod["metadata"]["uid"] for pod in stage.pods("nvidia-driver-daemonset")}
                      and stage.all_are(State.DONE), within=3600)


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_where_nothing_else_keeps_the_driver_loaded_gpu_pods_leave_before_their_driver_pod_does(stage: Stage) -> None:
    await stage.installed()
    await run_idle(stage)
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {one: {"enabled": False} for one in CLIENTS}})
    await stage.rest(120)
    await restart_drivers(stage)
    assert not torn(stage)
    assert State.POD_DELETION_REQUIRED in stage.entered("gpu-1")


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_no_gpu_pod_loses_its_driver_where_what_keeps_it_loaded_is_replaced_at_the_same_time(stage: Stage) -> None:
    await stage.installed()
    await run_idle(stage)
    before = {pod["metadata"]["uid"] for pod in stage.workload_pods("notebook")}
    await restart_drivers(stage, daemonsets={"priorityClassName": "system-cluster-critical"})
    assert not torn(stage)
    assert {pod["metadata"]["uid"] for pod in stage.workload_pods("notebook")} == before


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_no_gpu_pod_loses_its_driver_where_what_keeps_it_loaded_goes_at_the_same_time(stage: Stage) -> None:
    await stage.installed()
    await run_idle(stage)
    await restart_drivers(stage, **{one: {"enabled": False} for one in CLIENTS})
    assert not torn(stage)
