"""The manager of confidential computing takes GPUs from vfio-pci and resets them where it is to set another mode: it comes to no
host, and is replaced on none, while a virtual machine runs there.
"""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.resetting import DEPLOY_CC_MANAGER
from gpuward.sandbox.delays import GpuDelays
from gpuward.sandbox.hosts import VM_RESOURCE
from kubesandbox.sim.objects import is_ready
from tests.journeys.looking import screen_of
from tests.journeys.stage import Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS
from tests.journeys.test_hosts_managed import strategy
from tests.journeys.test_hosts_switched import with_manager
from tests.journeys.test_node_workload import PASSTHROUGH, end, is_host, run_machine, runs, torn

MANAGER = "nvidia-cc-manager"


def modes(stage: Stage) -> dict[str, str]:
    """Return the default mode by which the manager of each host has begun."""
    pods = [pod for pod in stage.pods() if pod["metadata"]["labels"].get("name") == MANAGER and is_ready(pod)]
    return {pod["spec"]["nodeName"]: value["value"] for pod in pods
            for value in pod["spec"]["containers"][0]["env"] if value["name"] == "DEFAULT_CC_MODE"}


def layouts(stage: Stage) -> dict[str, str]:
    """Return the default layout by which the manager of vGPU devices of each host has begun."""
    pods = [pod for pod in stage.pods("nvidia-vgpu-device-manager") if is_ready(pod)]
    return {pod["spec"]["nodeName"]: value["value"] for pod in pods
            for value in pod["spec"]["containers"][0]["env"] if value["name"] == "DEFAULT_VGPU_CONFIG"}


async def with_machine(stage: Stage, mode: str) -> None:
    """Let two nodes be for virtual machines that are run in a mode, and run one on the first."""
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH, "mode": mode})
    await stage.until(lambda: is_host(stage, "gpu-1") and is_host(stage, "gpu-2") and stage.policy_status()["state"] == "ready")
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))


async def goes_on(stage: Stage, mode: str) -> None:
    """End the virtual machine, and see that its host gets the mode, too, and nothing of it is left."""
    await end(stage, "vm")
    await stage.until(lambda: modes(stage) == {"gpu-1": mode, "gpu-2": mode} and strategy(stage, MANAGER) == "RollingUpdate")
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    await stage.until(lambda: stage.policy_status()["state"] == "ready")
    await stage.rest(300)
    assert (torn(stage), stage.cordons(), is_host(stage, "gpu-1")) == ([], [], True)


@on_stage(gpu_nodes=2)
async def test_another_mode_comes_to_hosts_that_nobody_uses(stage: Stage) -> None:
    await with_machine(stage, "kata")
    assert modes(stage) == {"gpu-1": "on", "gpu-2": "on"}
    await stage.patch_policy("ccManager/defaultMode", "off")
    await stage.until(lambda: modes(stage) == {"gpu-1": "on", "gpu-2": "off"})
    await stage.restart_operator()
    await stage.rest(600)
    assert (modes(stage), runs(stage, "vm"), torn(stage)) == ({"gpu-1": "on", "gpu-2": "off"}, True, [])
    told = "1 of 2 pods have an older template; that on gpu-1 is used by pod ml/vm"
    assert f"{MANAGER}: {told}" in stage.condition()["message"]
    assert f"  cc-manager 2/2  {told}" in await screen_of(stage)
    await goes_on(stage, "off")


@on_stage(gpu_nodes=2)
async def test_the_manager_comes_to_each_host_once_nobody_uses_it(stage: Stage) -> None:
    await with_machine(stage, "kubevirt")
    await stage.patch_policy("sandboxWorkloads/mode", "kata")
    await stage.until(lambda: modes(stage) == {"gpu-2": "on"})
    await stage.restart_operator()
    await stage.rest(300)
    assert (modes(stage), runs(stage, "vm"), torn(stage)) == ({"gpu-2": "on"}, True, [])
    told = f"{MANAGER} waits for the pods of virtual machines to go, as it may reset the GPUs: pod ml/vm runs on node gpu-1"
    assert stage.condition()["message"].endswith(f"state-cc-manager: {told}")
    await goes_on(stage, "on")


@on_stage(gpu_nodes=2)
async def test_it_stays_beside_a_machine_and_comes_back_once_that_has_gone(stage: Stage) -> None:
    await with_machine(stage, "kata")
    assert modes(stage) == {"gpu-1": "on", "gpu-2": "on"}
    await stage.patch_policy("sandboxWorkloads/enabled", False)
    await stage.rest(60)
    await stage.patch_policy("sandboxWorkloads/enabled", True)
    await stage.until(lambda: modes(stage) == {"gpu-2": "on"})
    await stage.rest(300)
    assert (modes(stage), runs(stage, "vm"), torn(stage)) == ({"gpu-2": "on"}, True, [])
    await goes_on(stage, "on")


@on_stage(gpu_nodes=2)
async def test_a_label_that_somebody_has_set_is_left_alone(stage: Stage) -> None:
    await with_machine(stage, "kubevirt")
    await stage.label("gpu-1", DEPLOY_CC_MANAGER, "false")
    await stage.patch_policy("sandboxWorkloads/mode", "kata")
    await stage.until(lambda: modes(stage) == {"gpu-2": "on"} and stage.policy_status()["state"] == "ready")
    await end(stage, "vm")
    await stage.rest(60)
    assert (modes(stage), stage.labels("gpu-1")[DEPLOY_CC_MANAGER]) == ({"gpu-2": "on"}, "false")


@on_stage(gpu_nodes=3)
async def test_another_layout_of_vgpus_comes_to_hosts_that_nobody_uses(stage: Stage) -> None:
    """The manager of vGPU devices takes those away that are there, and makes others."""
    await with_manager(stage)
    await stage.until(lambda: layouts(stage) == dict.fromkeys(HOSTS, "default"))
    await stage.patch_policy("vgpuDeviceManager/config", {"default": "H100-10"})
    await stage.until(lambda: layouts(stage) == {"gpu-1": "default", "gpu-2": "H100-10"})
    await stage.rest(300)
    assert (layouts(stage), runs(stage, "vm"), torn(stage)) == ({"gpu-1": "default", "gpu-2": "H100-10"}, True, [])
    await end(stage, "vm")
    await stage.until(lambda: layouts(stage) == dict.fromkeys(HOSTS, "H100-10") and not stage.cordons())


@on_stage(gpu_nodes=3)
async def test_the_manager_of_vgpu_devices_that_is_switched_on_comes_to_hosts_that_nobody_uses(stage: Stage) -> None:
    """Devices may have been made by hand before it."""
    await with_manager(stage)
    await stage.patch_policy("vgpuDeviceManager/enabled", False)
    await stage.until(lambda: layouts(stage) == {})
    await stage.patch_policy("vgpuDeviceManager/config", {"default": "H100-10"})
    await stage.patch_policy("vgpuDeviceManager/enabled", True)
    await stage.until(lambda: layouts(stage) == {"gpu-2": "H100-10"})
    await stage.restart_operator()
    await stage.rest(300)
    assert (layouts(stage), runs(stage, "vm"), torn(stage)) == ({"gpu-2": "H100-10"}, True, [])
    told = ("nvidia-vgpu-device-manager waits for the pods of virtual machines to go, as it may divide the GPUs anew: pod ml/vm "
            "runs on node gpu-1")
    assert stage.condition()["message"].endswith(f"state-vgpu-device-manager: {told}")
    await end(stage, "vm")
    await stage.until(lambda: layouts(stage) == dict.fromkeys(HOSTS, "H100-10") and stage.policy_status()["state"] == "ready")


@pytest.mark.parametrize("gap", [0.2, 1.0])
def test_a_manager_that_is_switched_off_and_on_does_not_come_back_beside_a_machine(gap: float) -> None:
    """Its pod is still there, and stops."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await with_machine(stage, "kata")
        await stage.patch_policy("ccManager/enabled", False)
        await stage.rest(gap)
        await stage.patch_policy("ccManager/defaultMode", "off")
        await stage.patch_policy("ccManager/enabled", True)
        await stage.until(lambda: modes(stage) == {"gpu-2": "off"})
        await stage.rest(300)
        assert (modes(stage), runs(stage, "vm"), torn(stage)) == ({"gpu-2": "off"}, True, [])
        await goes_on(stage, "off")

    story()


@pytest.mark.parametrize("late", ["", "pods", "daemonsets.apps", "nodes"])
@pytest.mark.parametrize("orphan", [False, True])
def test_a_manager_whose_daemon_set_somebody_deletes_divides_no_gpus_of_machines(orphan: bool, late: str) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await with_manager(stage)
        await stage.until(lambda: layouts(stage) == dict.fromkeys(HOSTS, "default"))
        stage.sandbox.api.watch_delay = lambda key: 3.0 if key == late else 0.01
        await stage.patch_policy("vgpuDeviceManager/config", {"default": "H100-10"})
        await stage.user.delete(resources.DAEMON_SETS, "nvidia-vgpu-device-manager", names.DEFAULT_NAMESPACE,
                                propagation="Orphan" if orphan else "Background")
        await stage.until(lambda: layouts(stage).get("gpu-2") == "H100-10")
        await stage.rest(300)
        assert layouts(stage) == ({"gpu-1": "default", "gpu-2": "H100-10"} if orphan else {"gpu-2": "H100-10"})
        assert (runs(stage, "vm"), torn(stage)) == (True, [])
        await end(stage, "vm")
        await stage.until(lambda: layouts(stage) == dict.fromkeys(HOSTS, "H100-10") and stage.policy_status()["state"] == "ready")

    story()


@on_stage(gpu_nodes=2)
async def test_a_manager_whose_pod_is_deleted_by_hand_comes_again(stage: Stage) -> None:
    """So people get the next mode who cannot wait."""
    await with_machine(stage, "kata")
    await stage.patch_policy("ccManager/defaultMode", "off")
    await stage.until(lambda: modes(stage) == {"gpu-1": "on", "gpu-2": "off"})
    (pod,) = [pod["metadata"]["name"] for pod in stage.pods(node="gpu-1") if pod["metadata"]["labels"].get("name") == MANAGER]
    await stage.user.delete(resources.PODS, pod, names.DEFAULT_NAMESPACE)
    await stage.until(lambda: modes(stage) == {"gpu-1": "off", "gpu-2": "off"} and stage.policy_status()["state"] == "ready")


@on_stage(gpu_nodes=2, delays=GpuDelays(reaction_seconds=1.0))
async def test_hosts_whose_driver_is_on_the_machine_are_not_cordoned_for_another_manager(stage: Stage) -> None:
    """No pod of theirs has brought a driver: what is about to go is the manager alone."""
    await stage.installed()
    await stage.patch_policy("vfioManager/enabled", False)
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": PASSTHROUGH, "mode": "kata"})
    await stage.until(lambda: modes(stage) == dict.fromkeys(HOSTS, "on"))
    await stage.rest(300)
    begun = len(stage.history)
    await stage.patch_policy("ccManager/defaultMode", "off")
    await stage.until(lambda: modes(stage) == dict.fromkeys(HOSTS, "off") and not stage.cordons())
    assert not any(moment.cordoned for moment in stage.history[begun:])
