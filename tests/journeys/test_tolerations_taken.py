"""Tolerations that are taken from drivers while a node has the taint: its driver pod would go at once, whatever uses it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.hosts import VM_RESOURCE
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from kubesandbox.timeloop import run_virtual
from tests.journeys.stage import NEW, OLD, Stage, gpu_template, on_stage, playing
from tests.journeys.test_node_workload import run_machine, runs
from tests.journeys.test_nvidiadriver import condition, make, nvidia_driver, set_driver

USUAL = [{"key": names.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
WIDE = [*USUAL, {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"}]


async def taint(stage: Stage, *nodes: str) -> None:
    """Give nodes a taint that operands tolerate."""
    for node in nodes:
        wanted = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}
        await stage.user.patch_merge(resources.NODES, node, {"spec": {"taints": [wanted]}})


async def used_behind_a_taint(stage: Stage) -> None:
    """Give two nodes the taint, and one of them a GPU pod that tolerates it."""
    await taint(stage, "gpu-1", "gpu-2")
    template = gpu_template("training")
    template["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "tolerations": [{"operator": "Exists"}]}
    stage.sandbox.apply(deployment("training", WORKLOAD_NAMESPACE, 1, template))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods("training"))) == 1)


async def tolerant_and_used(stage: Stage, mode: str) -> None:
    """Have drivers that tolerate the taint installed, and used on a node that has it."""
    await stage.patch_policy("daemonsets/tolerations", WIDE)
    if mode == "NVIDIADriver":
        await make(stage, nvidia_driver("all", default=True, tolerations=WIDE))
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.installed()
    await used_behind_a_taint(stage)


async def tolerate(stage: Stage, mode: str, wanted: list[dict[str, Any]]) -> None:
    """Edit the tolerations of what drivers follow from."""
    if mode == "NVIDIADriver":
        await set_driver(stage, "all", {"tolerations": wanted})
    else:
        await stage.patch_policy("daemonsets/tolerations", wanted)


def driver_pods(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods()
            if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == names.DRIVER_COMPONENT}


def vfio_managers(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods() for owner in pod["metadata"].get("ownerReferences", ())
            if owner["name"] == names.VFIO_MANAGER_APP}


def told(stage: Stage, mode: str) -> str:
    return condition(stage, "all")[2] if mode == "NVIDIADriver" else str(stage.condition()["message"])


@pytest.mark.parametrize("mode", ["ClusterPolicy", "NVIDIADriver"])
def test_no_driver_pod_goes_by_a_toleration_that_is_taken_while_pods_use_it(mode: str) -> None:
    async def main() -> None:
        async with playing(Stage(3)) as stage:
            await tolerant_and_used(stage, mode)
            before = driver_pods(stage)
            await tolerate(stage, mode, USUAL)
            await stage.rest(60)
            assert driver_pods(stage) == before
            field = "spec.tolerations" if mode == "NVIDIADriver" else "spec.daemonsets.tolerations"
            assert f"{field}: " in told(stage, mode)
            assert "tolerate dedicated=gpu:NoExecute as before: the driver pod of node gpu-1" in told(stage, mode)
            await tolerate(stage, mode, WIDE)
            await stage.until(lambda: stage.all_are(State.DONE) and "tolerate" not in told(stage, mode), within=120)
            await tolerate(stage, mode, USUAL)
            await stage.rest(30)
            await stage.user.delete(resources.DEPLOYMENTS, "training", WORKLOAD_NAMESPACE)
            await stage.until(lambda: len(driver_pods(stage)) == 1, within=300)

    run_virtual(main)


@on_stage(gpu_nodes=2)
async def test_no_vfio_manager_goes_so_under_a_virtual_machine(stage: Stage) -> None:
    await stage.patch_policy("daemonsets/tolerations", WIDE)
    await stage.patch_policy("sandboxWorkloads", {"enabled": True, "defaultWorkload": "vm-passthrough"})
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    await taint(stage, "gpu-1")
    run_machine(stage, "vm", "gpu-1", tolerations=[{"operator": "Exists"}])
    await stage.until(lambda: runs(stage, "vm"))
    before = vfio_managers(stage)
    assert len(before) == 2
    await stage.patch_policy("daemonsets/tolerations", USUAL)
    await stage.rest(60)
    assert vfio_managers(stage) == before
    assert "tolerate dedicated=gpu:NoExecute as before: the driver pod of node gpu-1" in told(stage, "ClusterPolicy")


@on_stage(gpu_nodes=3)
async def test_the_upgrade_is_not_called_done_while_the_edit_is_refused(stage: Stage) -> None:
    await tolerant_and_used(stage, "ClusterPolicy")
    await stage.until(lambda: stage.all_are(State.DONE))
    await stage.patch_policy("daemonsets/tolerations", USUAL)
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    upgrade, = (one for one in stage.policy_status()["conditions"] if one["type"] == "DriverUpgrade")
    assert (stage.drivers(), upgrade["status"], upgrade["reason"]) == ([OLD], "False", "InvalidPolicy")
    await stage.user.delete(resources.DEPLOYMENTS, "training", WORKLOAD_NAMESPACE)
    await stage.patch_policy("daemonsets/tolerations", WIDE)
    await stage.upgraded(NEW)


@on_stage(gpu_nodes=3)
async def test_what_is_missing_is_made_while_tolerations_are_refused(stage: Stage) -> None:
    await tolerant_and_used(stage, "ClusterPolicy")
    await stage.patch_policy("daemonsets/tolerations", USUAL)
    await stage.rest(30)
    assert "tolerate dedicated=gpu:NoExecute as before" in told(stage, "ClusterPolicy")
    plugin = "nvidia-device-plugin-daemonset"
    await stage.user.delete(resources.DAEMON_SETS, plugin, names.DEFAULT_NAMESPACE)
    await stage.until(lambda: stage.sandbox.store.find("daemonsets.apps", names.DEFAULT_NAMESPACE, plugin) is not None, within=60)
    assert "tolerate dedicated=gpu:NoExecute as before" in told(stage, "ClusterPolicy")


@on_stage(gpu_nodes=3)
async def test_what_an_nvidiadriver_misses_is_made_while_its_tolerations_are_refused(stage: Stage) -> None:
    await tolerant_and_used(stage, "NVIDIADriver")
    await set_driver(stage, "all", {"tolerations": USUAL})
    await stage.until(lambda: "tolerate dedicated=gpu:NoExecute as before" in told(stage, "NVIDIADriver"), within=30)
    account = next(ds["spec"]["template"]["spec"]["serviceAccountName"] for ds in stage.sandbox.store.list("daemonsets.apps")
                   if ds["metadata"]["name"].startswith("nvidia-gpu-driver-"))
    await stage.user.delete(resources.SERVICE_ACCOUNTS, account, names.DEFAULT_NAMESPACE)
    accounts = partial(stage.sandbox.store.find, "serviceaccounts", names.DEFAULT_NAMESPACE, account)
    await stage.until(lambda: accounts() is not None, within=60)
    await stage.rest(60)
    assert "tolerate dedicated=gpu:NoExecute as before" in told(stage, "NVIDIADriver")
    tolerations = [ds["spec"]["template"]["spec"]["tolerations"] for ds in stage.sandbox.store.list("daemonsets.apps")
                   if ds["metadata"]["name"].startswith("nvidia-gpu-driver-")]
    assert all(WIDE[-1] in each for each in tolerations)


@pytest.mark.parametrize("mode", ["ClusterPolicy", "NVIDIADriver"])
@pytest.mark.parametrize("refused_before", [True, False])
def test_drivers_that_a_daemonset_left_are_not_adopted_by_one_that_drives_them_out(mode: str, refused_before: bool) -> None:
    async def main() -> None:
        async with playing(Stage(3)) as stage:
            await tolerant_and_used(stage, mode)
            before = driver_pods(stage)
            ds, = (owner["name"] for pod in stage.pods() for owner in pod["metadata"]["ownerReferences"]
                   if pod["metadata"]["uid"] in before and pod["spec"]["nodeName"] == "gpu-1")
            if refused_before:
                await tolerate(stage, mode, USUAL)
                await stage.rest(30)
                await stage.user.delete(resources.DAEMON_SETS, ds, names.DEFAULT_NAMESPACE, propagation="Orphan")
            else:
                await stage.user.delete(resources.DAEMON_SETS, ds, names.DEFAULT_NAMESPACE, propagation="Orphan")
                await tolerate(stage, mode, USUAL)
            await stage.rest(60)
            assert driver_pods(stage) == before
            assert "tolerate dedicated=gpu:NoExecute as before: the driver pod of node gpu-1" in told(stage, mode)
            await tolerate(stage, mode, WIDE)
            await stage.until(lambda: stage.all_are(State.DONE) and "tolerate" not in told(stage, mode), within=120)
            assert driver_pods(stage) == before

    run_virtual(main)
