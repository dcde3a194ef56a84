"""What nodes are for may change: between containers and virtual machines, and never under pods that use a node's GPUs."""

from __future__ import annotations

from typing import Any

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.hosts import VFIO, VM_RESOURCE
from gpuward.sandbox.machine import DriverChange
from kubesandbox.sim.objects import is_ready
from tests.journeys.looking import explanation_of, reason_of, status_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver, set_driver, writes
from tests.journeys.test_status_screen import shown

VFIO_MANAGER = names.DEPLOY_VFIO_MANAGER
PASSTHROUGH = "vm-passthrough"
HOST = names.VGPU_HOST_COMPONENT


def torn(stage: Stage) -> list[str]:
    """Return the drivers that left a machine while pods had its GPUs."""
    return [f"{one.driver} {one.change} on {one.machine} under {', '.join(one.workloads)}" for one in stage.sandbox.passages
            if one.tore and one.change in (DriverChange.UNLOADED, DriverChange.LEFT)]


def run_machine(stage: Stage, name: str, node: str, **spec: Any) -> None:
    """Create the pod of a virtual machine with a whole GPU."""
    gpu = {VM_RESOURCE: "1"}
    container = {"name": "compute", "image": "registry.example/launcher:1", "resources": {"limits": gpu, "requests": gpu}}
    stage.sandbox.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": WORKLOAD_NAMESPACE,
                         "labels": {"app": name}}, "spec": {"nodeName": node, "containers": [container], **spec}})


def runs(stage: Stage, name: str) -> bool:
    pods = stage.workload_pods(name)
    return len(pods) == 1 and is_ready(pods[0])


async def end(stage: Stage, name: str) -> None:
    await stage.user.delete(resources.PODS, name, WORKLOAD_NAMESPACE)


def is_host(stage: Stage, node: str) -> bool:
    """Tell whether a node is one for virtual machines and its GPUs are bound to vfio-pci."""
    labels = stage.labels(node)
    return labels.get(VFIO_MANAGER) == "true" and names.DEPLOY_DRIVER not in labels and stage.driver(node) == VFIO


async def with_machine_on_vfio(stage: Stage) -> None:
    """Let two nodes be for virtual machines with whole GPUs, and run one on the first."""
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH})
    await stage.until(lambda: is_host(stage, "gpu-1") and is_host(stage, "gpu-2"))
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))


@on_stage(gpu_nodes=2)
async def test_a_node_changes_its_workload_once_its_gpus_are_free(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("train", "gpu-1")
    await stage.until(lambda: runs(stage, "train"))
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    for node in ("gpu-1", "gpu-2"):
        await stage.label(node, names.WORKLOAD_CONFIG, PASSTHROUGH)
    await stage.until(lambda: is_host(stage, "gpu-2") and stage.hold("gpu-1") == "WorkloadKept")
    await stage.rest(300)
    assert (stage.driver("gpu-1"), runs(stage, "train"), torn(stage)) == (OLD, True, [])
    assert VFIO_MANAGER not in stage.labels("gpu-1")
    assert any("stays a node for container" in message for message in stage.events("gpu-1"))
    shown = {node["name"]: node for node in (await status_of(stage))["nodes"]}
    assert (shown["gpu-1"]["reason"], shown["gpu-1"]["group"]) == ("WorkloadKept", "held")
    told = reason_of(await explanation_of(stage, "gpu-1"))
    assert "stays a node for container until its GPUs are free, and becomes one for vm-passthrough then: pod " in told
    assert "train uses them (1 in all)" in told
    end_them, stay = (await explanation_of(stage, "gpu-1")).remedies
    assert (end_them.do, end_them.then) == (
        "end the pods that use its GPUs, or wait for their end: 1 in all", "the node becomes one for vm-passthrough")
    assert stay.commands == ("kubectl label node gpu-1 nvidia.com/gpu.workload.config=container --overwrite",)
    await end(stage, "train")
    await stage.until(lambda: is_host(stage, "gpu-1") and stage.policy_status()["state"] == "ready")
    assert torn(stage) == []


@on_stage(gpu_nodes=2)
async def test_gpus_of_running_virtual_machines_stay_bound(stage: Stage) -> None:
    await with_machine_on_vfio(stage)
    await stage.patch_policy("sandboxWorkloads", {"enabled": False})
    await stage.until(lambda: stage.driver("gpu-2") == OLD)
    await stage.rest(300)
    assert (is_host(stage, "gpu-1"), runs(stage, "vm"), torn(stage)) == (True, True, [])
    assert any("stays a node for vm-passthrough" in message for message in stage.events("gpu-1"))
    told = reason_of(await explanation_of(stage, "gpu-1"))
    assert "its GPUs serve virtual machines; it stays a node for vm-passthrough until its GPUs are free" in told
    await end(stage, "vm")
    await stage.until(lambda: stage.driver("gpu-1") == OLD and not stage.pods("nvidia-vfio-manager"))
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    left = [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps", names.DEFAULT_NAMESPACE)]
    assert "nvidia-vfio-manager" not in left
    assert torn(stage) == []


@on_stage(gpu_nodes=2)
async def test_another_default_workload_waits_for_each_node_by_itself(stage: Stage) -> None:
    await stage.installed()
    stage.run_pod("train", "gpu-2")
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, "container")
    await stage.until(lambda: runs(stage, "train"))
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH})
    await stage.until(lambda: stage.hold("gpu-2") == "WorkloadKept")
    await stage.rest(120)
    assert ([stage.driver(node) for node in ("gpu-1", "gpu-2")], torn(stage)) == ([OLD, OLD], [])
    await stage.patch_policy("sandboxWorkloads/defaultWorkload", "container")
    await stage.until(lambda: not stage.hold("gpu-2"))
    assert runs(stage, "train")


@on_stage(gpu_nodes=1)
async def test_a_policy_that_cannot_be_followed_changes_no_nodes_workload(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH})
    await stage.until(lambda: is_host(stage, "gpu-1"))
    await stage.patch_policy("cdi", {"enabled": False, "nriPluginEnabled": True})
    await stage.until(lambda: "nriPluginEnabled" in stage.condition().get("message", ""))
    await stage.restart_operator()
    await stage.rest(120)
    assert is_host(stage, "gpu-1")


@on_stage(gpu_nodes=2)
async def test_a_host_of_vgpus_keeps_the_driver_of_its_nvidiadriver_under_machines(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, a="gpu-1")
    await make(stage, nvidia_driver("default", default=True), nvidia_driver("a", driverType="vgpu-host-manager"))
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.until(lambda: stage.labels("gpu-1").get(names.DEPLOY_VGPU_MANAGER) == "true" and stage.driver("gpu-1") == OLD)
    [host] = [pod for pod in stage.pods(node="gpu-1") if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == HOST]
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))
    await label_pools(stage, b="gpu-1")
    await make(stage, nvidia_driver("b", driverType="vgpu-host-manager"))
    await stage.rest(120)
    assert stage.labels("gpu-1")[names.DRIVER_OWNER] == "a"
    assert stage.get("pods", host["metadata"]["name"])["metadata"]["uid"] == host["metadata"]["uid"]
    await end(stage, "vm")
    await stage.until(lambda: stage.labels("gpu-1")[names.DRIVER_OWNER] == "b")
    assert torn(stage) == []


@on_stage(gpu_nodes=2)
async def test_a_node_that_becomes_a_host_in_mid_upgrade_keeps_nothing_of_it(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await set_driver(stage, "default", {"version": NEW})
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    [node] = [name for name, state in stage.states().items() if state == State.POD_RESTART_REQUIRED]
    await stage.label(node, names.WORKLOAD_CONFIG, PASSTHROUGH)
    await stage.until(lambda: is_host(stage, node) and not stage.cordoned(node) and not stage.state(node))
    [other] = {"gpu-1", "gpu-2"} - {node}
    await stage.rest(600)
    assert (stage.driver(other), stage.hold(other)) == (OLD, "Paused")
    await stage.until(lambda: stage.policy_status()["state"] == "ready")


@on_stage(gpu_nodes=3, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": "100%"})
async def test_an_upgrade_ends_where_nodes_become_hosts_and_no_driver_is_torn_away(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", 2)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.POD_RESTART_REQUIRED in stage.states().values())
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH})
    nodes = ("gpu-1", "gpu-2", "gpu-3")
    busy = {pod["spec"]["nodeName"] for pod in stage.workload_pods("train") if pod["spec"].get("nodeName")}
    await stage.until(lambda: not stage.cordons() and not any(stage.states().values()))
    await stage.until(lambda: {node for node in nodes if not is_host(stage, node)} <= busy)
    assert all(stage.hold(node) == "WorkloadKept" for node in nodes if not is_host(stage, node))
    assert torn(stage) == []
    await stage.user.delete(resources.DEPLOYMENTS, "train", WORKLOAD_NAMESPACE)
    await stage.until(lambda: all(is_host(stage, node) for node in nodes))
    assert torn(stage) == []


@on_stage(gpu_nodes=2)
async def test_the_vgpu_manager_stays_under_machines_though_it_is_switched_off(stage: Stage) -> None:
    await stage.installed()
    for field, value in {"repository": "registry.example.com/vgpu", "version": "580.95.02", "enabled": True}.items():
        await stage.patch_policy(f"vgpuManager/{field}", value)
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.until(lambda: stage.driver("gpu-1") == "vgpu-580.95.02" and stage.policy_status()["state"] == "ready")
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))
    await stage.patch_policy("vgpuManager/enabled", False)
    await stage.rest(120)
    assert (stage.driver("gpu-1"), torn(stage)) == ("vgpu-580.95.02", [])
    await end(stage, "vm")
    await stage.until(lambda: not stage.pods(names.VGPU_MANAGER_APP) and not stage.driver("gpu-1"))
    assert torn(stage) == []


@on_stage(gpu_nodes=3)
async def test_no_driver_is_upgraded_while_nodes_may_be_for_virtual_machines(stage: Stage) -> None:
    """Of NVIDIADrivers neither: their nodes do not tell driver managers that they are emptied for them."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.until(lambda: stage.policy_status().get("state") == "ready" and stage.drivers() == [OLD])
    stage.run_pod("training", "gpu-1", owned=True)
    await stage.cordon("gpu-3")
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.rest(60)
    before = {pod["metadata"]["uid"] for pod in (*stage.workload_pods(), *driver_pods(stage))}
    await set_driver(stage, "default", {"version": NEW})
    await stage.rest(1800)
    assert {pod["metadata"]["uid"] for pod in (*stage.workload_pods(), *driver_pods(stage))} == before
    assert (stage.drivers(), stage.cordons()) == ([OLD], ["gpu-3"])
    assert stage.hold("gpu-1") == "Paused"
    await stage.cordon("gpu-3", wanted=False)
    await stage.patch_policy("sandboxWorkloads", {"enabled": False})
    await stage.upgraded()


@on_stage(gpu_nodes=3)
async def test_labels_and_upgrades_agree_that_no_driver_is_upgraded_beside_virtual_machines(stage: Stage) -> None:
    """Nodes whose drivers come from elsewhere now wait, and nobody writes that again and again."""
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.rest(300)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.rest(600)
    before = writes(stage)
    await stage.rest(3600)
    assert {what: count - before.get(what, 0) for what, count in writes(stage).items() if count - before.get(what, 0) > 10} == {}
    assert stage.drivers() == [OLD]
    await stage.patch_policy("sandboxWorkloads", {"enabled": False})
    await stage.until(lambda: stage.all_are(State.DONE), within=3600)


@on_stage(gpu_nodes=2)
async def test_a_driver_comes_to_unused_nodes_though_no_driver_is_upgraded(stage: Stage) -> None:
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("default", default=True))
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.rest(60)
    await stage.remove_at_once()
    await stage.user.delete(resources.NVIDIA_DRIVERS, "default")
    await stage.until(lambda: not driver_pods(stage))
    await stage.rest(30)
    await make(stage, nvidia_driver("default", default=True, version=NEW))
    await stage.until(lambda: stage.drivers() == [NEW], within=3600)


@on_stage(gpu_nodes=2)
async def test_a_label_that_asks_for_an_unknown_workload_is_told_of(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.rest(60)
    await stage.label("gpu-1", names.WORKLOAD_CONFIG, "vm-pasthrough")
    await stage.rest(60)
    told = ("the label nvidia.com/gpu.workload.config=vm-pasthrough is none of container, vm-passthrough, vm-vgpu: "
            "the node is for container, the default")
    assert stage.driver("gpu-1") == OLD
    assert told in stage.events("gpu-1")
    assert told in (await explanation_of(stage, "gpu-1")).notes
    assert (await explanation_of(stage, "gpu-2")).notes == ()
    assert f"node gpu-1: {told}" in await shown(stage)


@on_stage(gpu_nodes=1)
async def test_a_host_is_validated_anew_for_another_kind_of_virtual_machines(stage: Stage) -> None:
    """Its validator's files said that vGPUs are not needed: what offers them looked for some before any was made."""
    await stage.installed()
    await stage.patch_policy("vgpuManager", {"enabled": True, "repository": "r.example", "image": "vgpu-manager", "version": OLD})
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    seen: set[str] = set()
    for kind in (PASSTHROUGH, "vm-vgpu", PASSTHROUGH):
        await stage.label("gpu-1", names.WORKLOAD_CONFIG, kind)
        await stage.rest(300)
        validator, = stage.pods(names.SANDBOX_VALIDATOR_APP, "gpu-1")
        assert validator["metadata"]["uid"] not in seen
        seen.add(validator["metadata"]["uid"])
        assert len(stage.pods("nvidia-sandbox-device-plugin-daemonset", "gpu-1")) == 1
        assert not stage.cordons()
