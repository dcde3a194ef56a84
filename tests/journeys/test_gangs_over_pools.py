"""A gang on nodes of two NVIDIADrivers, whose pods are given notice: all are told at once, and leave at once."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_gangs import Alike, Evictions, gang_template
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver, set_driver, with_pools
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


@on_stage(gpu_nodes=4, kind=Alike)
async def test_a_gang_whose_part_in_each_pool_leaves_at_once_is_spared_by_both(stage: Stage) -> None:
    limits = {"autoUpgrade": True, "maxParallelUpgrades": 1, "maxUnavailable": 1}
    await label_pools(stage, a="gpu-1 gpu-2", b="gpu-3 gpu-4")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", limits), nvidia_driver("b", limits))
    await stage.installed()
    for pool in ("a", "b"):
        template = gang_template()
        template["metadata"]["labels"]["app"] = f"train-{pool}"
        template["spec"]["nodeSelector"] = {"pool": pool}
        stage.sandbox.apply(deployment(f"train-{pool}", WORKLOAD_NAMESPACE, 1, template))

    def at() -> list[str]:
        return sorted(pod["spec"]["nodeName"] for pod in stage.workload_pods() if pod["spec"].get("nodeName"))

    await stage.until(lambda: len(at()) == 2)
    left = at()
    others = sorted(stage.states().keys() - set(left))
    for node in others:
        await stage.label(node, names.UPGRADE_SKIP, "true")
    seen = [Evictions(stage, f"train-{pool}") for pool in ("a", "b")]
    await apply(stage, gangs={})
    await stage.rest(10)
    for name in ("a", "b"):
        await set_driver(stage, name, {"version": NEW})
    await stage.until(lambda: at() == others and all(stage.state(node) == State.DONE for node in left), within=1800)
    for node in others:
        await stage.label(node, names.UPGRADE_SKIP, None)
    await stage.rest(3600)
    assert [stage.hold(node) for node in others] == ["GangSpared"] * 2
    assert [len(each.seen) for each in seen] == [1, 1], "each pool has room for its part of it, so that it leaves once"


@pytest.mark.parametrize(("limit", "asked"), [(1, OLD), (0, NEW)], ids=["at rest", "closed"])
def test_a_gang_is_spared_in_one_pool_where_it_has_to_leave_none_of_the_nodes_of_another(limit: int, asked: str) -> None:
    @on_stage(gpu_nodes=4, kind=Alike)
    async def scenario(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2", b="gpu-3 gpu-4")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}),
                   nvidia_driver("b", {"maxParallelUpgrades": 0, "maxUnavailable": limit}))
        await stage.installed()
        for pool, pods in (("a", 1), ("b", 2)):
            template = gang_template()
            template["metadata"]["labels"]["app"] = f"train-{pool}"
            template["spec"]["nodeSelector"] = {"pool": pool}
            stage.sandbox.apply(deployment(f"train-{pool}", WORKLOAD_NAMESPACE, pods, template))
        await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 3)
        ((left,), (spared,)) = ([node for node in ("gpu-1", "gpu-2") if bool(stage.workload_pods("train-a", node)) is there]
                                for there in (True, False))
        await stage.label(spared, names.UPGRADE_SKIP, "true")
        seen = Evictions(stage, "train-a")
        await apply(stage, gangs={})
        await set_driver(stage, "b", {"version": asked})
        await stage.rest(10)
        await set_driver(stage, "a", {"version": NEW})
        await stage.until(lambda: stage.workload_pods("train-a", spared) and stage.state(left) == State.DONE, within=1800)
        await stage.label(spared, names.UPGRADE_SKIP, None)
        await stage.rest(3600)
        assert (stage.hold(spared), seen.nodes) == ("GangSpared", [left]), "all that it has to leave can be left at once"

    scenario()
