"""Driver pods that no DaemonSet owns on nodes whose labels ask for another driver, or none: nobody but the operator ends them.

No other driver comes to such a node while one is there. Judged from the machines.
"""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.hosts import VFIO
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import OLD, Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS, OURS, host_sets, hosts, with_machine
from tests.journeys.test_hosts_switched import MANAGED, MANAGER
from tests.journeys.test_node_workload import HOST, PASSTHROUGH, end, run_machine, runs, torn
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver


async def orphaned(stage: Stage) -> None:
    """Leave the drivers to NVIDIADrivers, so that the ClusterPolicy's driver pods belong to no DaemonSet."""
    await stage.installed()
    await label_pools(stage, a=" ".join(HOSTS))
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.rest(60)
    assert [len(driver_pods(stage, node)) for node in HOSTS] == [1, 1]


async def for_machines(stage: Stage, workload: str | None) -> None:
    for node in HOSTS:
        await stage.label(node, names.WORKLOAD_CONFIG, workload)


def loaded(stage: Stage) -> list[str]:
    return [stage.driver(node) for node in HOSTS]


@on_stage(gpu_nodes=3)
async def test_an_orphan_leaves_a_node_that_becomes_a_host_of_vgpus(stage: Stage) -> None:
    await orphaned(stage)
    await make(stage, nvidia_driver("a", **OURS))
    await for_machines(stage, "vm-vgpu")
    await stage.until(lambda: hosts(stage) == set(HOSTS) and loaded(stage) == [OLD, OLD])
    assert [driver_pods(stage, node) for node in HOSTS] == [[], []]
    assert (len(driver_pods(stage, "gpu-3")), stage.driver("gpu-3"), torn(stage)) == (1, OLD, [])


@on_stage(gpu_nodes=3)
async def test_a_node_with_an_orphan_gets_a_driver_again_after_passthrough(stage: Stage) -> None:
    await orphaned(stage)
    await for_machines(stage, PASSTHROUGH)
    await stage.until(lambda: loaded(stage) == [VFIO, VFIO] and not any(driver_pods(stage, node) for node in HOSTS))
    await for_machines(stage, None)
    await stage.until(lambda: loaded(stage) == [OLD, OLD])


@on_stage(gpu_nodes=3)
async def test_an_orphan_goes_though_the_policy_cannot_be_followed(stage: Stage) -> None:
    await orphaned(stage)
    await stage.patch_policy("cdi", {"enabled": False, "nriPluginEnabled": True})
    await stage.until(lambda: "nriPluginEnabled" in stage.condition().get("message", ""))
    await for_machines(stage, PASSTHROUGH)
    await stage.until(lambda: not any(driver_pods(stage, node) for node in HOSTS))


@on_stage(gpu_nodes=3)
async def test_an_orphan_waits_for_the_pods_that_use_the_gpus_of_its_host(stage: Stage) -> None:
    await orphaned(stage)
    await stage.kill_operator()
    await for_machines(stage, PASSTHROUGH)
    labels = stage.labels("gpu-1")
    gone = [key for key in labels if key.startswith(names.DEPLOY_PREFIX)]
    wanted = {**dict.fromkeys(gone), names.DEPLOY_VFIO_MANAGER: "true", names.DEPLOY_PREFIX + "sandbox-device-plugin": "true",
              names.DEPLOY_PREFIX + "sandbox-validator": "true"}
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"labels": wanted}})
    await stage.rest(60)
    run_machine(stage, "vm", "gpu-1")
    await stage.restart_operator()
    await stage.until(lambda: not driver_pods(stage, "gpu-2"))
    await stage.rest(120)
    told = "its GPUs serve virtual machines; it keeps its driver, which is to go, while pod ml/vm is there (1 in all)"
    assert (len(driver_pods(stage, "gpu-1")), told in reason_of(await explanation_of(stage, "gpu-1"))) == (1, True)
    assert sum("keeps its driver, which is to go" in message for message in stage.events("gpu-1")) == 1
    await end(stage, "vm")
    await stage.until(lambda: not driver_pods(stage, "gpu-1"))
    assert torn(stage) == []


@pytest.mark.parametrize("held", [False, True])
def test_an_orphan_leaves_a_node_that_wants_no_operands(held: bool) -> None:
    @on_stage(gpu_nodes=2)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.patch_policy("driver/upgradePolicy/autoUpgrade", False)
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("default", {"autoUpgrade": False}, default=True))
        await stage.rest(60)
        if held:
            stage.run_pod("train", "gpu-1")
            await stage.until(lambda: runs(stage, "train"))
        await stage.label("gpu-1", names.DEPLOY_OPERANDS, "false")
        await stage.rest(120)
        assert (len(driver_pods(stage, "gpu-1")), len(driver_pods(stage, "gpu-2"))) == (held, 1)
        if held:
            await end(stage, "train")
        await stage.until(lambda: not driver_pods(stage, "gpu-1") and not stage.driver("gpu-1"))
        assert torn(stage) == []

    scenario()


@pytest.mark.parametrize("order", ["nvidiadriver first", "daemonset first"])
@pytest.mark.parametrize("operator", [True, False])
def test_an_orphan_of_a_host_lets_the_next_driver_in(order: str, operator: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_machine(stage)
        if not operator:
            await stage.kill_operator()
        for first in (order == "nvidiadriver first", order != "nvidiadriver first"):
            if first:
                await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
            else:
                for name in host_sets(stage):
                    await stage.user.delete(resources.DAEMON_SETS, name, names.DEFAULT_NAMESPACE, propagation="Orphan")
            await stage.rest(1)
        if not operator:
            await stage.restart_operator()
        await stage.rest(120)
        assert (runs(stage, "vm"), torn(stage)) == (True, [])
        await end(stage, "vm")
        await for_machines(stage, None)
        await stage.patch_policy("sandboxWorkloads", {"enabled": False})
        await stage.until(lambda: stage.finished(OLD) and not hosts(stage), within=900)
        assert torn(stage) == []

    scenario()


@pytest.mark.parametrize("to_manager", [True, False])
def test_an_orphan_of_a_host_is_replaced_once_no_machine_uses_it(to_manager: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_machine(stage, default=False)
        await stage.kill_operator()
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        for name in host_sets(stage):
            await stage.user.delete(resources.DAEMON_SETS, name, names.DEFAULT_NAMESPACE, propagation="Orphan")
        await stage.rest(1)
        await stage.restart_operator()
        await stage.rest(60)
        [pod] = [pod for pod in stage.pods(node="gpu-2")
                 if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.VGPU_HOST_COMPONENT]
        assert (f"driver pod {pod['metadata']['name']} of this host belongs to no DaemonSet: it goes when another driver comes"
                in reason_of(await explanation_of(stage, "gpu-2")))
        if to_manager:
            await stage.user.patch_merge(resources.CLUSTER_POLICIES, "cluster-policy", {"spec": {
                "driver": {"useNvidiaDriverCRD": False}, "vgpuManager": MANAGER}})
        else:
            await make(stage, nvidia_driver("b", **OURS))
            await label_pools(stage, b=" ".join(HOSTS))
        await stage.rest(300)
        assert (runs(stage, "vm"), stage.driver("gpu-1"), torn(stage)) == (True, OLD, [])
        await end(stage, "vm")
        await stage.until(lambda: loaded(stage) == ([MANAGED, MANAGED] if to_manager else [OLD, OLD])
                          and (not hosts(stage) if to_manager else hosts(stage) == set(HOSTS)))
        await stage.rest(120)
        assert torn(stage) == []
        assert stage.policy_status()["state"] == "ready" or not to_manager, "gpu-3 has no NVIDIADriver"

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_hosts_driver_pod_whose_component_label_somebody_takes_stays_under_its_machine(stage: Stage) -> None:
    await with_machine(stage, default=False)
    for pod in [pod["metadata"] for pod in stage.pods() if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == HOST]:
        await stage.user.patch_merge(resources.PODS, pod["name"], {"metadata": {"labels": {names.COMPONENT_LABEL: None}}},
                                     namespace=pod["namespace"])
    await stage.label("gpu-1", "pool", None)
    await stage.rest(300)
    assert (runs(stage, "vm"), stage.driver("gpu-1"), torn(stage)) == (True, OLD, [])


@on_stage(gpu_nodes=2)
async def test_a_vfio_manager_pod_without_a_daemonset_goes_and_its_node_can_be_given_to_machines_again(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, PASSTHROUGH)
    await stage.until(lambda: stage.driver("gpu-1") == VFIO)
    await stage.kill_operator()
    await stage.user.delete(resources.DAEMON_SETS, names.VFIO_MANAGER_APP, names.DEFAULT_NAMESPACE, propagation="Orphan")
    await stage.patch_policy("sandboxWorkloads", {"enabled": False})
    await stage.rest(5)
    await stage.restart_operator()
    await stage.until(lambda: stage.driver("gpu-1") == OLD and not any(
        pod["metadata"]["labels"].get("name") == names.VFIO_MANAGER_APP for pod in stage.pods(node="gpu-1")), within=900)
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.until(lambda: stage.driver("gpu-1") == VFIO, within=900)
