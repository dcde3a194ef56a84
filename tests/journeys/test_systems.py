"""A fleet with two operating systems, whose ClusterPolicy's driver is for one: it stays so while people change their mind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.fleet import gpu_node
from tests.journeys.looking import explanation_of
from tests.journeys.stage import OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver

Change = Callable[[Stage], Awaitable[None]]
UNLIMITED = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}


async def _set(stage: Stage, driver: Object) -> None:
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {"driver": driver}})


def to_and_fro(there: Object, back: Object) -> Change:
    async def change(stage: Stage) -> None:
        await _set(stage, there)
        await stage.rest(0.5)
        await _set(stage, back)
    return change


async def deleted(stage: Stage) -> None:
    await stage.user.delete(resources.DAEMON_SETS, names.DRIVER_APP, names.DEFAULT_NAMESPACE, propagation="Orphan")


@pytest.mark.parametrize("change", [
    deleted,
    to_and_fro({"enabled": False}, {"enabled": True}),
    to_and_fro({"usePrecompiled": True, "version": "580"}, {"usePrecompiled": False, "version": OLD}),
    to_and_fro({"useNvidiaDriverCRD": True}, {"useNvidiaDriverCRD": False}),
], ids=["deleted", "off", "precompiled", "nvidiadrivers"])
def test_a_daemonset_that_is_made_anew_is_for_the_system_of_the_drivers_that_run(change: Change) -> None:
    @on_stage(gpu_nodes=3, upgrade=UNLIMITED)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await make(stage, nvidia_driver("default", default=True))
        await stage.label("gpu-1", names.NFD_OS_VERSION, "24.04")
        for node in stage.states():
            stage.run_pod(f"training-{node}", node, owned=True)
        await stage.rest(60)
        image = stage.driver_pod("gpu-2")["spec"]["containers"][0]["image"]
        await change(stage)
        await stage.rest(900)
        assert len(stage.workload_pods()) == 3
        assert stage.driver_pod("gpu-2")["spec"]["containers"][0]["image"] == image
        assert stage.cordons() == []

    scenario()


def image(to: str) -> Change:
    async def change(stage: Stage) -> None:
        def edit(ds: Object) -> None:
            ds["spec"]["template"]["spec"]["containers"][0]["image"] = f"registry.example/driver:{OLD}-{to}"

        stage.sandbox.store.modify("daemonsets.apps", names.DEFAULT_NAMESPACE, names.DRIVER_APP, edit)
    return change


@pytest.mark.parametrize("to", ["ubuntu24.04", "rhel9"])
def test_an_image_that_somebody_puts_in_brings_no_other_system(to: str) -> None:
    """Somebody sets the image of the DaemonSet by hand, or goes back to a template for another system."""
    @on_stage(gpu_nodes=4, upgrade=UNLIMITED)
    async def scenario(stage: Stage) -> None:
        await stage.installed()
        await stage.label("gpu-4", names.NFD_OS_VERSION, "24.04")
        await become(stage, "gpu-3", "rhel", "9.4")
        await keeps_its_pods(stage, image(to))

    scenario()


@on_stage(gpu_nodes=3, upgrade=UNLIMITED)
async def test_a_node_of_another_system_changes_no_driver_that_a_digest_names(stage: Stage) -> None:
    """It is the first by name; what the driver mounts and the tags of its sidecars depend on the system."""
    await stage.patch_policy("driver/version", f"sha256:{'0' * 64}")
    await stage.installed()
    await keeps_its_pods(stage, lambda stage: become(stage, "gpu-1", "rhel", "9.4"))


@on_stage(gpu_nodes=3, upgrade=UNLIMITED)
async def test_a_node_of_another_system_changes_no_precompiled_driver_of_others(stage: Stage) -> None:
    await _set(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()

    async def joins(stage: Stage) -> None:
        node = gpu_node("gpu-0")
        node["metadata"]["labels"] |= {names.NFD_OS_ID: "sles", names.NFD_OS_VERSION: "15.6"}
        stage.sandbox.add_node(node)

    await keeps_its_pods(stage, joins)


@on_stage(gpu_nodes=2)
async def test_explain_says_that_a_driver_is_for_another_system_than_its_node_has(stage: Stage) -> None:
    await stage.installed()
    await become(stage, "gpu-2", "ubuntu", "24.04")
    await stage.rest(60)
    said = {node: (await explanation_of(stage, node)).notes for node in stage.states()}
    told = {node: [note for note in notes if "its driver is for" in note] for node, notes in said.items()}
    assert (told["gpu-1"], len(told["gpu-2"])) == ([], 1)
    assert told["gpu-2"][0].startswith("its driver is for ubuntu22.04, and the node runs ubuntu24.04: a ClusterPolicy has one")


async def become(stage: Stage, node: str, system: str, version: str) -> None:
    await stage.user.patch_merge(
        resources.NODES, node, {"metadata": {"labels": {names.NFD_OS_ID: system, names.NFD_OS_VERSION: version}}})


async def keeps_its_pods(stage: Stage, change: Change) -> None:
    """Check that a change lets every GPU pod run on, and every driver pod."""
    nodes = list(stage.states())
    for node in nodes:
        stage.run_pod(f"training-{node}", node, owned=True)
    await stage.rest(60)
    before = {node: driver_pods(stage, node)[0]["metadata"]["uid"] for node in nodes}
    await change(stage)
    await stage.rest(900)
    assert len(stage.workload_pods()) == len(nodes)
    assert {node: driver_pods(stage, node)[0]["metadata"]["uid"] for node in nodes} == before
    assert stage.cordons() == []


CRIO, CONTAINERD = "cri-o://1.33.2", "containerd://2.1.4"
SUBSCRIPTION = "/run/secrets/etc-pki-entitlement"


@pytest.mark.parametrize(("runtime", "another"), [(CRIO, CONTAINERD), (CONTAINERD, CRIO)])
@pytest.mark.parametrize("by_nvidia_driver", [False, True])
def test_a_node_with_another_runtime_changes_no_mounts_of_others(runtime: str, another: str, by_nvidia_driver: bool) -> None:
    """On RHEL: a subscription of the host is mounted by CRI-O itself, and for containerd by the driver's DaemonSet."""
    @on_stage(gpu_nodes=3, upgrade=UNLIMITED)
    async def scenario(stage: Stage) -> None:
        for node in ("gpu-1", "gpu-2", "gpu-3"):
            has(stage, node, "rhel", runtime)
        if by_nvidia_driver:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        mounts = [mount["mountPath"] for mount in driver_pods(stage, "gpu-1")[0]["spec"]["containers"][0]["volumeMounts"]]
        assert (SUBSCRIPTION in mounts) == (runtime == CONTAINERD)

        async def comes_and_goes(stage: Stage) -> None:
            stage.sandbox.add_node(gpu_node("gpu-0"))
            has(stage, "gpu-0", "rhel", another)
            await stage.rest(300)
            await stage.user.delete(resources.NODES, "gpu-0")

        await keeps_its_pods(stage, comes_and_goes)

    scenario()


@on_stage(gpu_nodes=3, upgrade=UNLIMITED)
async def test_a_node_with_a_driver_of_its_own_does_not_hold_the_system_of_others(stage: Stage) -> None:
    """All nodes but one, on which somebody has installed a driver, are installed anew with another system."""
    await stage.installed()
    await stage.label("gpu-1", names.DEPLOY_DRIVER, "pre-installed")
    for node in ("gpu-2", "gpu-3"):
        await become(stage, node, "ubuntu", "24.04")
    await stage.rest(900)
    for node in ("gpu-2", "gpu-3"):
        assert stage.driver_pod(node)["spec"]["containers"][0]["image"].endswith("-ubuntu24.04")


def has(stage: Stage, node: str, system: str, runtime: str) -> None:
    def edit(body: Object) -> None:
        body["metadata"]["labels"] |= {names.NFD_OS_ID: system, names.NFD_OS_VERSION: "9.4"}

    stage.sandbox.store.patch_status("nodes", None, node, lambda body: body["status"]["nodeInfo"].update(
        containerRuntimeVersion=runtime))
    stage.sandbox.store.modify("nodes", None, node, edit)


@pytest.mark.parametrize("by_nvidia_driver", [False, True])
def test_a_daemonset_that_is_made_anew_has_the_mounts_of_the_drivers_that_run(by_nvidia_driver: bool) -> None:
    @on_stage(gpu_nodes=3, upgrade=UNLIMITED)
    async def scenario(stage: Stage) -> None:
        for node in ("gpu-1", "gpu-2", "gpu-3"):
            has(stage, node, "rhel", CRIO)
        if by_nvidia_driver:
            await stage.patch_policy("driver/useNvidiaDriverCRD", True)
            await make(stage, nvidia_driver("default", default=True))
        await stage.installed()
        stage.sandbox.add_node(gpu_node("gpu-0"))
        has(stage, "gpu-0", "rhel", CONTAINERD)
        await stage.rest(300)
        name = driver_pods(stage, "gpu-1")[0]["metadata"]["ownerReferences"][0]["name"]

        async def made_anew(stage: Stage) -> None:
            await stage.user.delete(resources.DAEMON_SETS, name, names.DEFAULT_NAMESPACE, propagation="Orphan")

        await keeps_its_pods(stage, made_anew)

    scenario()
