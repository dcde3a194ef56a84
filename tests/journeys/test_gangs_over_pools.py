"""A gang on nodes of two NVIDIADrivers, whose pods are given notice: all are told at once, and leave at once."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_gangs import Alike, Evictions
from tests.journeys.test_nvidiadriver import nvidia_driver, set_driver, with_pools
from tests.journeys.test_rolloutpolicy import apply


def noticed(stage: Stage) -> list[str]:
    return [node for node in sorted(stage.states()) if names.NOTICE in stage.node(node)["metadata"].get("annotations", {})]


@on_stage(gpu_nodes=6, kind=Alike)
async def test_nodes_of_another_nvidiadriver_with_pods_of_the_gang_are_given_notice_next_there(stage: Stage) -> None:
    limits = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": 1}
    await with_pools(stage, nvidia_driver("a", limits), nvidia_driver("b", limits))
    for node in ("gpu-4", "gpu-1", "gpu-5"):  # the youngest would come first, and it is alone
        stage.run_pod(f"train-{node}", node, owned=True)
        body = {"metadata": {"labels": {names.JOBSET_NAME: "alone" if node == "gpu-5" else "train"}}}
        await stage.user.patch_merge(resources.PODS, f"train-{node}", body, namespace=WORKLOAD_NAMESPACE)
        await stage.rest(10)
    for node in ("gpu-2", "gpu-3", "gpu-6"):
        await stage.label(node, names.UPGRADE_SKIP, "true")
    seen = [Evictions(stage, f"train-{node}") for node in ("gpu-1", "gpu-4")]
    await apply(stage, gangs={}, notice={"before": "15m"})
    await stage.rest(10)
    for name in ("a", "b"):
        await set_driver(stage, name, {"version": NEW})
    await stage.until(lambda: len(noticed(stage)) == 2, within=120)
    assert noticed(stage) == ["gpu-1", "gpu-4"]
    await stage.until(lambda: all(each.seen for each in seen), within=1200)
    (first, _), (second, _) = (next(iter(each.seen.values())) for each in seen)
    assert abs(first - second) < 5
