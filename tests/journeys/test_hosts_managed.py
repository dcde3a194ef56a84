"""Hosts of vGPUs whose driver the vGPU manager brings: another template of it comes to each host once nothing uses that.

Judged from the machines.
"""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.hosts import VM_RESOURCE
from tests.journeys.looking import explanation_of, screen_of, status_of
from tests.journeys.stage import OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS, OURS
from tests.journeys.test_hosts_switched import MANAGED, MANAGER, loaded, managed, switch, with_manager
from tests.journeys.test_node_workload import end, is_host, run_machine, runs, torn, with_machine_on_vfio
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver

NEW, NEWER = "vgpu-590.10.01", "vgpu-591.00.01"


def daemon_set(stage: Stage, name: str = names.VGPU_MANAGER_APP) -> Object:
    (ds,) = [ds for ds in stage.sandbox.store.list("daemonsets.apps") if ds["metadata"]["name"] == name]
    return ds


def strategy(stage: Stage, name: str = names.VGPU_MANAGER_APP) -> Any:
    return daemon_set(stage, name)["spec"].get("updateStrategy", {}).get("type", "RollingUpdate")


async def upgrade(stage: Stage, driver: str) -> None:
    await stage.patch_policy("vgpuManager/version", driver.removeprefix("vgpu-"))


async def goes_on(stage: Stage) -> None:
    """End the virtual machine, and see that its host gets the new driver, too, and nothing of the upgrade is left."""
    await end(stage, "vm")
    await stage.until(lambda: len(set(loaded(stage))) == 1 and strategy(stage) == "RollingUpdate", within=600)
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)), within=300)
    await stage.rest(300)
    assert (torn(stage), stage.cordons(), managed(stage)) == ([], [], set(HOSTS))


@on_stage(gpu_nodes=3)
async def test_another_version_comes_to_hosts_that_nobody_uses(stage: Stage) -> None:
    await with_manager(stage)
    assert strategy(stage) == "RollingUpdate", "as NVIDIA's"
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [MANAGED, NEW] and managed(stage) == set(HOSTS), within=600)
    await stage.rest(1800)
    assert (loaded(stage), torn(stage), stage.cordons(), strategy(stage)) == ([MANAGED, NEW], [], [], "OnDelete")
    assert runs(stage, "vm")
    told = "1 of 2 pods have an older template; that on gpu-1 is used by pod ml/vm"
    (operand,) = [one for one in (await status_of(stage))["operands"] if one["name"] == "vgpu-manager"]
    assert operand["waitsFor"] == told
    assert f"  vgpu-manager 2/2  {told}" in await screen_of(stage)
    assert f"{names.VGPU_MANAGER_APP}: {told}" in stage.policy_status()["conditions"][0]["message"]
    assert "has an older template: it goes once no pod uses the GPUs" in (await explanation_of(stage, "gpu-1")).unmanaged
    await goes_on(stage)
    assert loaded(stage) == [NEW, NEW]


@on_stage(gpu_nodes=3)
async def test_where_no_virtual_machine_runs_it_is_as_with_nvidias(stage: Stage) -> None:
    await with_manager(stage)
    await end(stage, "vm")
    await stage.rest(30)
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [NEW, NEW], within=600)
    assert strategy(stage) == "RollingUpdate"


@on_stage(gpu_nodes=4)
async def test_a_virtual_machine_that_comes_while_other_hosts_are_upgraded_keeps_its_driver(stage: Stage) -> None:
    await with_manager(stage)
    await stage.label("gpu-3", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.until(lambda: stage.driver("gpu-3") == MANAGED and "gpu-3" in managed(stage))
    await end(stage, "vm")
    await stage.rest(60)
    await upgrade(stage, NEW)
    await stage.until(lambda: any(stage.driver(node) != MANAGED for node in (*HOSTS, "gpu-3")))
    later = max(node for node in (*HOSTS, "gpu-3") if stage.driver(node) == MANAGED)
    run_machine(stage, "vm", later)
    await stage.rest(900)
    assert (stage.driver(later), runs(stage, "vm"), torn(stage), stage.cordons()) == (MANAGED, True, [], [])
    await end(stage, "vm")
    await stage.until(lambda: stage.driver(later) == NEW and strategy(stage) == "RollingUpdate")
    assert torn(stage) == []


@on_stage(gpu_nodes=3)
async def test_a_manager_that_comes_back_with_another_version_finds_a_virtual_machine(stage: Stage) -> None:
    """Its DaemonSet was deleted without its pods, and adopts the one that runs on under the virtual machine."""
    await stage.installed()
    await with_manager(stage)
    await end(stage, "vm")
    await stage.rest(30)
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [NEW, NEW] and strategy(stage) == "RollingUpdate")
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))
    await label_pools(stage, a=" ".join(HOSTS))
    await make(stage, nvidia_driver("a", **OURS), nvidia_driver("default", default=True))
    await switch(stage, to_manager=False)
    await stage.until(lambda: loaded(stage) == [NEW, OLD])
    manager = {**MANAGER, "version": NEWER.removeprefix("vgpu-")}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {
        "spec": {"driver": {"useNvidiaDriverCRD": False}, "vgpuManager": manager}})
    await stage.until(lambda: loaded(stage) == [NEW, NEWER])
    await stage.rest(600)
    assert (loaded(stage), torn(stage), runs(stage, "vm"), strategy(stage)) == ([NEW, NEWER], [], True, "OnDelete")
    await goes_on(stage)


@on_stage(gpu_nodes=3)
async def test_a_version_that_was_taken_back_restarts_nothing_in_use(stage: Stage) -> None:
    await with_manager(stage)
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [MANAGED, NEW] and managed(stage) == set(HOSTS), within=600)
    await upgrade(stage, MANAGED)
    await stage.until(lambda: loaded(stage) == [MANAGED, MANAGED] and strategy(stage) == "RollingUpdate", within=600)
    await stage.rest(300)
    assert (torn(stage), runs(stage, "vm"), stage.cordons()) == ([], True, [])


@on_stage(gpu_nodes=3)
async def test_a_newer_version_on_the_way_and_another_operator(stage: Stage) -> None:
    await with_manager(stage)
    await upgrade(stage, NEW)
    await stage.rest(20)
    await stage.restart_operator()
    await upgrade(stage, NEWER)
    await stage.until(lambda: loaded(stage) == [MANAGED, NEWER] and managed(stage) == set(HOSTS), within=900)
    await stage.restart_operator()
    await goes_on(stage)
    assert loaded(stage) == [NEWER, NEWER]


@on_stage(gpu_nodes=4)
async def test_a_version_that_does_not_start_costs_one_host(stage: Stage) -> None:
    await with_manager(stage)
    await stage.label("gpu-3", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.until(lambda: stage.driver("gpu-3") == MANAGED)
    stage.sandbox.has_image = lambda image: "590" not in image
    await upgrade(stage, NEW)
    await stage.rest(1800)
    assert sorted(stage.driver(node) for node in ("gpu-1", "gpu-2", "gpu-3")) == ["", MANAGED, MANAGED]
    assert (torn(stage), stage.driver("gpu-1")) == ([], MANAGED)
    await upgrade(stage, MANAGED)
    await stage.until(lambda: {stage.driver(node) for node in ("gpu-1", "gpu-2", "gpu-3")} == {MANAGED}, within=900)
    assert torn(stage) == []


def revisions_come_late(stage: Stage) -> None:
    """Let the watch of revisions lag behind that of DaemonSets."""
    stage.sandbox.api.watch_delay = lambda key: 5.0 if key == "controllerrevisions.apps" else 0.0


@on_stage(gpu_nodes=3)
async def test_a_late_watch_of_revisions_lets_no_controller_replace_a_manager(stage: Stage) -> None:
    await with_manager(stage)
    revisions_come_late(stage)
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [MANAGED, NEW] and managed(stage) == set(HOSTS), within=600)
    await stage.rest(300)
    assert (loaded(stage), torn(stage), runs(stage, "vm"), strategy(stage)) == ([MANAGED, NEW], [], True, "OnDelete")
    await upgrade(stage, MANAGED)
    await stage.until(lambda: loaded(stage) == [MANAGED, MANAGED] and strategy(stage) == "RollingUpdate", within=600)
    await upgrade(stage, NEWER)
    await goes_on(stage)
    assert loaded(stage) == [NEWER, NEWER]


@on_stage(gpu_nodes=3)
async def test_a_late_watch_of_revisions_lets_no_controller_replace_one_on_a_tainted_host_either(stage: Stage) -> None:
    """A DaemonSet's status does not count such a host."""
    await with_manager(stage)
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"spec": {"taints": [taint]}})
    await stage.label("gpu-2", names.WORKLOAD_CONFIG, "container")
    await stage.until(lambda: stage.driver("gpu-2") == OLD)
    await stage.rest(60)
    revisions_come_late(stage)
    await upgrade(stage, NEW)
    await stage.rest(300)
    assert (stage.driver("gpu-1"), torn(stage), runs(stage, "vm"), strategy(stage)) == (MANAGED, [], True, "OnDelete")


@on_stage(gpu_nodes=3)
async def test_a_late_watch_of_pods_lets_no_manager_be_replaced_whose_daemonset_was_deleted_without_it(stage: Stage) -> None:
    await with_manager(stage)
    stage.sandbox.api.watch_delay = lambda key: 5.0 if key == "pods" else 0.0
    await stage.user.delete(resources.DAEMON_SETS, names.VGPU_MANAGER_APP, names.DEFAULT_NAMESPACE, propagation="Orphan")
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [MANAGED, NEW] and managed(stage) == set(HOSTS), within=600)
    await stage.rest(300)
    assert (loaded(stage), torn(stage), runs(stage, "vm"), strategy(stage)) == ([MANAGED, NEW], [], True, "OnDelete")
    await goes_on(stage)


@on_stage(gpu_nodes=4)
async def test_a_version_whose_pods_may_not_be_made_costs_one_host(stage: Stage) -> None:
    """As for Pod Security here, or a quota."""
    await with_manager(stage)
    await stage.label("gpu-3", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.until(lambda: stage.driver("gpu-3") == MANAGED and "gpu-3" in managed(stage))
    await end(stage, "vm")
    await stage.rest(30)
    enforce = "pod-security.kubernetes.io/enforce"
    await stage.user.patch_merge(resources.NAMESPACES, names.DEFAULT_NAMESPACE, {"metadata": {"labels": {enforce: "restricted"}}})
    await upgrade(stage, NEW)
    await stage.rest(600)
    assert sorted(stage.driver(node) for node in ("gpu-1", "gpu-2", "gpu-3")) == ["", MANAGED, MANAGED]
    await stage.user.patch_merge(resources.NAMESPACES, names.DEFAULT_NAMESPACE, {"metadata": {"labels": {enforce: None}}})
    await stage.until(lambda: {stage.driver(node) for node in ("gpu-1", "gpu-2", "gpu-3")} == {NEW}, within=1800)


@on_stage(gpu_nodes=4)
async def test_a_host_that_a_taint_keeps_without_a_manager_keeps_no_other_waiting(stage: Stage) -> None:
    await with_manager(stage)
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    await stage.user.patch_merge(resources.NODES, "gpu-3", {"spec": {"taints": [taint]}})
    await stage.label("gpu-3", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.until(lambda: names.DEPLOY_VGPU_MANAGER in stage.labels("gpu-3"))
    await upgrade(stage, NEW)
    await stage.until(lambda: loaded(stage) == [MANAGED, NEW] and managed(stage) == set(HOSTS), within=600)
    await goes_on(stage)


@on_stage(gpu_nodes=3)
async def test_who_asks_for_ondelete_deletes_by_hand(stage: Stage) -> None:
    await with_manager(stage)
    await stage.patch_policy("daemonsets/updateStrategy", "OnDelete")
    await stage.rest(60)
    await upgrade(stage, NEW)
    await stage.rest(900)
    assert (loaded(stage), strategy(stage)) == ([MANAGED, MANAGED], "OnDelete")


@on_stage(gpu_nodes=2)
async def test_another_vfio_manager_comes_to_hosts_that_nobody_uses(stage: Stage) -> None:
    await with_machine_on_vfio(stage)
    before = vfio_pods(stage)
    await stage.patch_policy("daemonsets/labels", {"team": "ml"})
    await stage.until(lambda: before["gpu-2"] != vfio_pods(stage).get("gpu-2") and is_host(stage, "gpu-2"), within=600)
    await stage.rest(900)
    assert (before["gpu-1"], torn(stage), runs(stage, "vm")) == (vfio_pods(stage)["gpu-1"], [], True)
    await end(stage, "vm")
    await stage.until(lambda: strategy(stage, names.VFIO_MANAGER_APP) == "RollingUpdate", within=600)
    await stage.until(lambda: is_host(stage, "gpu-1") and is_host(stage, "gpu-2"))
    assert (torn(stage), stage.cordons()) == ([], [])


def vfio_pods(stage: Stage) -> dict[str, str]:
    return {pod["spec"].get("nodeName", ""): pod["metadata"]["uid"] for pod in stage.pods()
            if pod["metadata"]["labels"].get("name") == names.VFIO_MANAGER_APP}


@on_stage(gpu_nodes=4)
async def test_a_host_that_a_taint_would_leave_without_a_manager_keeps_the_one_it_has(stage: Stage) -> None:
    await with_manager(stage)
    taint = {"key": "example.com/repair", "effect": "NoSchedule"}
    await stage.user.patch_merge(resources.NODES, "gpu-2", {"spec": {"taints": [taint]}})
    await stage.label("gpu-3", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.until(lambda: stage.driver("gpu-3") == MANAGED and "gpu-3" in managed(stage))
    await upgrade(stage, NEW)
    await stage.until(lambda: stage.driver("gpu-3") == NEW, within=600)
    await stage.rest(600)
    assert (loaded(stage), torn(stage)) == ([MANAGED, MANAGED], [])
    told = (await explanation_of(stage, "gpu-2")).unmanaged
    assert "has an older template: it stays while taint example.com/repair:NoSchedule keeps the next one away" in told
    await stage.user.patch_merge(resources.NODES, "gpu-2", {"spec": {"taints": None}})
    await stage.until(lambda: loaded(stage) == [MANAGED, NEW], within=600)
    await end(stage, "vm")
    await stage.until(lambda: loaded(stage) == [NEW, NEW] and strategy(stage) == "RollingUpdate", within=600)
