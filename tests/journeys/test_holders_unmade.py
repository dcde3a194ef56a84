"""Only driver pods are to be restarted, and the API server refuses the pods that would hold the driver meanwhile."""

from __future__ import annotations

from gpuward import names
from tests.journeys.looking import explanation_of
from tests.journeys.stage import Stage, on_stage

PLUGIN = "nvidia-device-plugin-daemonset"


@on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 3, "maxUnavailable": "100%"})
async def test_nobody_is_told_to_give_up_another_driver_while_no_driver_pod_is_made(stage: Stage) -> None:
    await stage.installed()
    for node in ("gpu-2", "gpu-3"):
        await stage.deploy(f"train-{node}", 1, node=node)
    await stage.patch_policy("daemonsets/priorityClassName", "gpu-critical")
    await stage.until(lambda: stage.hold("gpu-2") == "OperandsStarting")
    await stage.until(lambda: stage.hold("gpu-1") == "DriverPodMissing")
    await stage.rest(120)
    told = await explanation_of(stage, "gpu-2")
    (only,) = told.remedies
    assert only.do.startswith(f"let DaemonSet {names.DEFAULT_NAMESPACE}/{PLUGIN} ")
    assert only.commands == (f"kubectl describe daemonset {PLUGIN} -n {names.DEFAULT_NAMESPACE}",)
    assert only.then.startswith("this node starts at once")
    stage.sandbox.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gpu-critical"},
                         "value": 1000000})
    await stage.until(lambda: not stage.cordons() and not stage.operator.plan.holds, 7200)
