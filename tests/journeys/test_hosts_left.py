"""Hosts of vGPUs whose NVIDIADriver is deleted: the driver leaves each once no virtual machine uses its GPUs, and nothing stays.
Judged from the machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.hosts import VM_RESOURCE
from tests.journeys.looking import explanation_of, obey, screen_of
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_node_workload import HOST, end, run_machine, runs, torn
from tests.journeys.test_nvidiadriver import condition, label_pools, make, nvidia_driver, set_driver
from tests.journeys.test_rolloutpolicy import apply
from tests.journeys.test_status_screen import shown

OURS: Mapping[str, Any] = {"driverType": "vgpu-host-manager"}
HOSTS = ("gpu-1", "gpu-2")


def hosts(stage: Stage) -> set[str]:
    """Return the nodes with a pod that has the driver of a host."""
    return {pod["spec"].get("nodeName", "") for pod in stage.pods()
            if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == HOST}


def host_pods(stage: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods() if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == HOST}


def host_sets(stage: Stage) -> list[str]:
    return [ds["metadata"]["name"] for ds in stage.sandbox.store.list("daemonsets.apps")
            if ds["metadata"]["labels"].get(names.COMPONENT_LABEL) == HOST]


async def with_machine(stage: Stage, *, default: bool = True) -> None:
    """Let NVIDIADriver `a` have two hosts, and run a virtual machine on the first."""
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await label_pools(stage, a=" ".join(HOSTS))
    await make(stage, nvidia_driver("a", **OURS), *([nvidia_driver("default", default=True)] if default else []))
    for node in HOSTS:
        await stage.label(node, names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    await stage.until(lambda: hosts(stage) == set(HOSTS) and [stage.driver(node) for node in HOSTS] == [OLD, OLD])
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))
    await stage.rest(30)


async def is_gone(stage: Stage) -> None:
    """End the virtual machine, and see that no driver of a host is left, nor what brought it."""
    await end(stage, "vm")
    await stage.until(lambda: not hosts(stage) and not host_sets(stage), within=120)
    assert ([stage.driver(node) for node in HOSTS], torn(stage)) == (["", ""], [])


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_the_driver_of_a_deleted_nvidiadriver_leaves_each_host_once_it_is_free(default: bool, at_once: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_machine(stage, default=default)
        if at_once:
            await apply(stage, removeAtOnce=True)
            await stage.rest(30)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.until(lambda: hosts(stage) == {"gpu-1"}, within=60)
        await stage.rest(300)
        assert (hosts(stage), runs(stage, "vm"), stage.driver("gpu-1"), torn(stage)) == ({"gpu-1"}, True, OLD, [])
        told = "keeps its driver, which is to go, while pod ml/vm is there (1 in all)"
        assert told in (await explanation_of(stage, "gpu-1")).unmanaged
        assert any(told in message for message in stage.events("gpu-1"))
        await is_gone(stage)
        assert stage.cordons() == []

    scenario()


@on_stage(gpu_nodes=3)
async def test_drivers_of_hosts_that_were_left_behind_run_on_until_another_one_takes_the_nodes(stage: Stage) -> None:
    await with_machine(stage)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a", propagation="Orphan")
    await end(stage, "vm")
    await stage.rest(300)
    assert (hosts(stage), [stage.driver(node) for node in HOSTS]) == (set(HOSTS), [OLD, OLD])
    before = host_sets(stage)
    await make(stage, nvidia_driver("b", **OURS))
    await label_pools(stage, b=" ".join(HOSTS))
    await stage.until(lambda: hosts(stage) == set(HOSTS) and len(host_sets(stage)) == 1 and host_sets(stage) != before)
    await stage.until(lambda: [stage.driver(node) for node in HOSTS] == [OLD, OLD])


@pytest.mark.parametrize("operator", [True, False])
def test_an_nvidiadriver_that_is_made_anew_takes_its_hosts_over(operator: bool) -> None:
    """As `kubectl replace --force` makes it."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_machine(stage)
        if not operator:
            await stage.kill_operator()
        before, pods = host_sets(stage), host_pods(stage)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.rest(1)
        await make(stage, nvidia_driver("a", **OURS))
        if not operator:
            await stage.restart_operator()
        await stage.rest(300)
        assert (condition(stage, "a")[0], host_sets(stage), runs(stage, "vm"), torn(stage)) == ("ready", before, True, [])
        assert len(pods - host_pods(stage)) <= operator, "the free host lost its driver before"
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.rest(60)
        await is_gone(stage)

    scenario()


@pytest.mark.parametrize("operator", [True, False])
def test_an_nvidiadriver_that_is_made_anew_for_containers_waits_for_the_machines_on_its_hosts(operator: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_machine(stage)
        if not operator:
            await stage.kill_operator()
        before = host_sets(stage)
        await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.rest(1)
        await make(stage, nvidia_driver("a"))
        if not operator:
            await stage.restart_operator()
        await stage.rest(300)
        assert (host_sets(stage), runs(stage, "vm"), torn(stage)) == (before, True, [])
        assert f"DaemonSet {before[0]} of an earlier NVIDIADriver with this name keeps its nodes" in condition(stage, "a")[2]
        await is_gone(stage)
        await stage.until(lambda: condition(stage, "a")[0] == "ready")

    scenario()


@pytest.mark.parametrize("field", ["useNvidiaDriverCRD", "enabled"])
@pytest.mark.parametrize("first", [True, False])
def test_hosts_lose_their_driver_too_where_drivers_are_not_nvidiadrivers_any_more(field: str, first: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await with_machine(stage)
        if first:
            await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.patch_policy(f"driver/{field}", False)
        await stage.rest(60)
        if not first:
            await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
        await stage.rest(300)
        assert ("gpu-1" in hosts(stage), runs(stage, "vm"), torn(stage)) == (True, True, [])
        await is_gone(stage)

    scenario()


@on_stage(gpu_nodes=3)
async def test_the_drivers_of_hosts_are_shown_by_their_daemonset(stage: Stage) -> None:
    await with_machine(stage)
    assert any(line.startswith("operands  all ") for line in await screen_of(stage))
    (name,) = host_sets(stage)
    lines = await shown(stage, output="wide")
    assert [line.split() for line in lines if line.startswith("driver of NVIDIADriver a ")] == [
        ["driver", "of", "NVIDIADriver", "a", "2/2", name]]


@on_stage(gpu_nodes=3)
async def test_people_are_told_to_replace_the_driver_of_a_host_whose_nvidiadriver_asks_for_another(stage: Stage) -> None:
    """Its DaemonSet is OnDelete, as with NVIDIA's operator."""
    await with_machine(stage)
    await end(stage, "vm")
    await set_driver(stage, "a", {"version": NEW})
    await stage.rest(300)
    assert [stage.driver(node) for node in HOSTS] == [OLD, OLD]
    told = "have an older driver for virtual machines than their NVIDIADrivers ask for, and nobody replaces its pod"
    assert f"warning: gpu-1, gpu-2 {told}: gpuward explain gpu-1" in " ".join(line.strip() for line in await screen_of(stage))
    for node in HOSTS:
        [pod] = [pod["metadata"]["name"] for pod in stage.pods(node=node)
                 if pod["metadata"]["labels"].get(names.COMPONENT_LABEL) == HOST]
        command = f"kubectl delete pod {pod} -n {names.DEFAULT_NAMESPACE}"
        assert (f"driver pod {pod} of this host has an older template, and nobody replaces it: once no pod uses the GPUs, "
                f"`{command}` does") in (await explanation_of(stage, node)).unmanaged
        await obey(stage, command)
    await stage.until(lambda: [stage.driver(node) for node in HOSTS] == [NEW, NEW])
    await stage.rest(30)
    assert not [line for line in await screen_of(stage) if "older driver" in line]
