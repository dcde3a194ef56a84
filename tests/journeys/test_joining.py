"""A node that joins while what people wrote cannot be followed runs what was asked for last; nobody else gets anything new."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.crd.keptspec import LONGEST
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import gpu_node
from kubesandbox.sim.objects import is_ready
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_discovery_in_every_mode import PRECOMPILED_NVIDIADRIVER, serving
from tests.journeys.test_moves import OTHER_KERNEL, uids, with_workloads
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, owners, set_driver
from tests.journeys.test_removed import COMPILED, NVIDIADRIVER, PRECOMPILED


async def spoil(stage: Stage, **driver: object) -> None:
    """Make the ClusterPolicy one that cannot be followed, and let another operator meet it that knows nothing."""
    patch = {"spec": {"driver": {"upgradePolicy": {"maxUnavailable": "abc"}, **driver}}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, patch)
    await stage.until(lambda: stage.condition().get("reason") == "ReconcileFailed")
    await stage.restart_operator()
    await stage.rest(60)


def serves(stage: Stage, node: str) -> bool:
    """Tell whether a node offers its GPUs: the driver is loaded, and every pod of the stack on it is ready."""
    pods = [pod for pod in stage.pods(node=node) if pod["status"].get("phase") != "Succeeded"]
    gpus = stage.node(node)["status"].get("allocatable", {}).get("nvidia.com/gpu", "0")
    return bool(pods) and all(map(is_ready, pods)) and int(gpus) > 0


async def joins(stage: Stage, name: str, driver: str = OLD, *, os: str = "ubuntu22.04", **labels: str) -> None:
    """Let a node join, and see that it gets to work."""
    node = gpu_node(name, os=os)
    node["metadata"]["labels"] |= labels
    node["status"]["nodeInfo"]["kernelVersion"] = node["metadata"]["labels"][names.NFD_KERNEL]
    stage.sandbox.add_node(node)
    await stage.until(lambda: serves(stage, name) and stage.driver(name) == driver)
    await stage.until(lambda: stage.state(name) == State.DONE)
    assert not stage.cordoned(name)
    enabled = stage.node(name)["metadata"]["annotations"].get(names.UPGRADE_ENABLED)
    assert enabled == "true", "the driver manager leaves the emptying to the operator"


@on_stage(gpu_nodes=2)
async def test_a_node_that_joins_under_a_refused_policy_gets_the_stack_of_the_last_valid_one(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1")
    pods = {pod["metadata"]["uid"] for pod in (*stage.pods(), *stage.workload_pods())}
    await spoil(stage, version=NEW)
    await joins(stage, "gpu-3")
    assert pods <= {pod["metadata"]["uid"] for pod in (*stage.pods(), *stage.workload_pods())}
    assert stage.drivers() == [OLD]
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "25%")
    await stage.upgraded()


@on_stage(gpu_nodes=2)
async def test_a_node_that_joins_under_a_refused_policy_gets_its_precompiled_driver(stage: Stage) -> None:
    await stage.patch_policy("driver/version", "580")
    await stage.patch_policy("driver/usePrecompiled", True)
    await stage.installed()
    await spoil(stage, usePrecompiled=False, version=NEW)
    await joins(stage, "gpu-3", stage.driver("gpu-1"))


@on_stage(gpu_nodes=2)
async def test_a_node_that_joins_under_a_refused_policy_gets_the_driver_of_its_nvidiadriver(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a", version=NEW), nvidia_driver("default", default=True))
    await stage.installed()
    await spoil(stage, useNvidiaDriverCRD=False)
    await joins(stage, "gpu-3", NEW, pool="a")
    await joins(stage, "gpu-4", OLD)
    assert owners(stage) == {"gpu-1": "a", "gpu-2": "default", "gpu-3": "a", "gpu-4": "default"}


@on_stage(gpu_nodes=3)
async def test_under_a_refused_policy_no_node_goes_from_one_nvidiadriver_to_another(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1", b="gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b"), nvidia_driver("default", default=True))
    await stage.installed()
    before = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    await spoil(stage)
    await set_driver(stage, "b", {"nodeSelector": {"pool": "c"}})
    await joins(stage, "gpu-4", os="ubuntu24.04")
    await stage.rest(300)
    assert owners(stage) == {"gpu-1": "a", "gpu-2": "b", "gpu-3": "default", "gpu-4": "default"}
    assert before < {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "25%")
    await stage.until(lambda: owners(stage)["gpu-2"] == "default", 1200)


@on_stage(gpu_nodes=2)
async def test_a_node_that_joins_the_pool_of_a_refused_nvidiadriver_gets_its_last_valid_driver(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1", b="gpu-2")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b", version=NEW))
    await stage.installed()
    before = {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    await set_driver(stage, "a", {"version": NEW, "nodeSelector": {"pool": "b"}, "env": [{"name": ""}]})
    await stage.rest(60)
    await stage.restart_operator()
    await joins(stage, "gpu-3", pool="a")
    assert owners(stage) == {"gpu-1": "a", "gpu-2": "b", "gpu-3": "a"}
    assert before < {pod["metadata"]["uid"] for pod in driver_pods(stage)}
    assert [stage.driver(node) for node in ("gpu-1", "gpu-2")] == [OLD, NEW]


@pytest.mark.parametrize("how", ["another kernel", "another system", "deleted"])
@pytest.mark.parametrize("mode", [COMPILED, PRECOMPILED, NVIDIADRIVER, PRECOMPILED_NVIDIADRIVER])
def test_what_is_missing_under_a_refused_policy_is_made_as_the_last_valid_one_says(mode: str, how: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        watcher = await serving(stage, mode)
        driver, before = stage.driver("gpu-1"), uids(stage)
        await spoil(stage, version=NEW, usePrecompiled=mode != PRECOMPILED)
        if how == "deleted":
            for ds in stage.sandbox.store.list("daemonsets.apps"):
                await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], ds["metadata"]["namespace"],
                                        propagation="Orphan")
            await stage.rest(120)
        else:
            os, kernel = ("ubuntu22.04", OTHER_KERNEL) if how == "another kernel" else ("ubuntu24.04", "6.8.0-60-generic")
            if mode == COMPILED and how == "another system":
                return  # one DaemonSet for all, with the operating system of the first: as with NVIDIA's operator
            await joins(stage, "gpu-3", driver, os=os, **{names.NFD_KERNEL: kernel})
        await stage.rest(300)
        assert (watcher.torn, before <= uids(stage)) == ([], True)
        assert {ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")} >= {names.VALIDATOR_APP}
        assert [stage.driver(node) for node in ("gpu-1", "gpu-2")] == [driver, driver]
        await stage.restart_operator()
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "25%")
        await stage.patch_policy("driver/version", "580" if mode == PRECOMPILED else OLD)
        await stage.patch_policy("driver/usePrecompiled", mode == PRECOMPILED)
        await stage.rest(300)
        assert (watcher.torn, before <= uids(stage)) == ([], True)

    story()


@pytest.mark.parametrize("precompiled", [False, True])
def test_a_node_that_joins_a_refused_nvidiadriver_gets_its_last_valid_driver_for_its_own_system(precompiled: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        spec: dict[str, Any] = {"version": "580", "usePrecompiled": True} if precompiled else {}
        await make(stage, nvidia_driver("default", default=True, **spec))
        await stage.installed()
        watcher, driver, before = await with_workloads(stage), stage.driver("gpu-1"), uids(stage)
        await set_driver(stage, "default", {"version": NEW, "env": [{"name": ""}]})
        await stage.rest(60)
        await stage.restart_operator()
        await joins(stage, "gpu-3", driver, os="ubuntu24.04", **{names.NFD_KERNEL: "6.8.0-60-generic"})
        assert (watcher.torn, before <= uids(stage)) == ([], True)

    story()


@on_stage(gpu_nodes=1)
async def test_the_first_gpu_node_under_a_refused_policy_gets_the_stack_of_the_last_valid_one(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.remove_node("gpu-1")
    await stage.rest(120)
    await spoil(stage, version=NEW)
    for ds in stage.sandbox.store.list("daemonsets.apps"):
        await stage.user.delete(resources.DAEMON_SETS, ds["metadata"]["name"], ds["metadata"]["namespace"])
    await joins(stage, "gpu-3", OLD)


@on_stage(gpu_nodes=2)
async def test_a_spec_that_is_too_long_to_be_kept_leaves_no_older_one_behind(stage: Stage) -> None:
    def kept() -> str:
        found = stage.sandbox.store.find("clusterpolicies.nvidia.com", None, POLICY)
        assert found is not None
        return str(found["metadata"]["annotations"].get(names.VALID_SPEC, ""))

    await stage.installed()
    assert '"version":"' + OLD in kept()
    before = uids(stage)
    await stage.patch_policy("dcgmExporter/env", [{"name": "LONG", "value": "x" * LONGEST}])
    await stage.until(lambda: not kept())
    await spoil(stage, version=NEW)
    await joins(stage, "gpu-3")
    assert before <= uids(stage)
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "25%")
    await stage.patch_policy("dcgmExporter/env", [])
    await stage.until(lambda: '"version":"' + NEW in kept())


@pytest.mark.parametrize("spoilt", ["{", "[]", '{"driver": {"version": 7}}', '{"driver":' * 5000])
def test_garbage_where_the_last_valid_policy_is_kept_is_as_good_as_nothing(spoilt: str) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        before = uids(stage)
        await spoil(stage, version=NEW)
        note = {"metadata": {"annotations": {names.VALID_SPEC: spoilt}}}
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, note)
        await stage.restart_operator()
        await joins(stage, "gpu-3")
        assert before <= uids(stage)

    story()
