"""Hosts of vGPUs whose driver is to come from elsewhere: from the ClusterPolicy's vGPU manager, or from an NVIDIADriver.

No machine ever has two drivers, none loses its driver under a virtual machine, and each ends with one that is loaded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.sandbox.hosts import VM_RESOURCE
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.sim.objects import is_ready, labels_of
from kubesandbox.store import Event
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import OLD, POLICY, Object, Stage, on_stage
from tests.journeys.test_hosts_left import HOSTS, OURS, host_sets, hosts, with_machine
from tests.journeys.test_idle_node_changes import ask_for_a_gpu
from tests.journeys.test_node_workload import HOST, PASSTHROUGH, end, is_host, run_machine, runs, torn
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver

MANAGER = {"repository": "registry.example.com/vgpu", "version": "580.95.02", "enabled": True}
MANAGED = "vgpu-580.95.02"


def brings(pod: Object) -> bool:
    """Tell whether a pod brings the driver of a host."""
    labels = labels_of(pod)
    return labels.get("app") == names.VGPU_MANAGER_APP or labels.get(names.COMPONENT_LABEL) == HOST


class Doubles:
    """Note the nodes that have two pods which bring the driver of a host."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.seen: set[str] = set()
        stage.sandbox.store.subscribe(self._look, "pods")

    def _look(self, _: Event) -> None:
        there = [pod["spec"].get("nodeName", "") for pod in self._stage.pods() if brings(pod)]
        self.seen |= {node for node in there if node and there.count(node) > 1}


def managed(stage: Stage) -> set[str]:
    """Return the nodes with a ready pod of the vGPU manager."""
    return {pod["spec"]["nodeName"] for pod in stage.pods(names.VGPU_MANAGER_APP) if is_ready(pod)}


async def switch(stage: Stage, *, to_manager: bool) -> None:
    spec = {"driver": {"useNvidiaDriverCRD": not to_manager}, "vgpuManager": {**MANAGER, "enabled": to_manager}}
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": spec})


def loaded(stage: Stage) -> list[str]:
    return [stage.driver(node) for node in HOSTS]


async def with_manager(stage: Stage) -> None:
    """Let the vGPU manager bring the drivers of two hosts, and run a virtual machine on the first."""
    await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {
        "vgpuManager": MANAGER, "sandboxWorkloads": {"enabled": True}}})
    for node in HOSTS:
        await stage.label(node, names.WORKLOAD_CONFIG, "vm-vgpu")
    await stage.until(lambda: managed(stage) == set(HOSTS) and loaded(stage) == [MANAGED, MANAGED])
    await stage.until(lambda: int(stage.node("gpu-1")["status"]["allocatable"].get(VM_RESOURCE, 0)))
    run_machine(stage, "vm", "gpu-1")
    await stage.until(lambda: runs(stage, "vm"))
    await stage.rest(30)


@on_stage(gpu_nodes=3)
async def test_hosts_go_from_an_nvidiadriver_to_the_vgpu_manager_once_they_are_free(stage: Stage) -> None:
    await with_machine(stage, default=False)
    doubles = Doubles(stage)
    await switch(stage, to_manager=True)
    await stage.rest(300)
    assert (loaded(stage), hosts(stage), managed(stage)) == ([OLD, OLD], set(HOSTS), set())
    assert (runs(stage, "vm"), torn(stage), doubles.seen) == (True, [], set())
    kept = "the driver of NVIDIADrivers{} until pod ml/vm on node gpu-1 has gone (1 in all)"
    assert f"waits for the pods of virtual machines to go: all hosts keep {kept.format('')}" in stage.condition()["message"]
    for node in HOSTS:
        assert f"; it keeps {kept.format(', as all such hosts do,')}" in reason_of(await explanation_of(stage, node))
    await end(stage, "vm")
    await stage.until(lambda: managed(stage) == set(HOSTS) and loaded(stage) == [MANAGED, MANAGED])
    await stage.until(lambda: not host_sets(stage))
    await stage.rest(300)
    assert (loaded(stage), torn(stage), doubles.seen, stage.cordons()) == ([MANAGED, MANAGED], [], set(), [])
    assert stage.policy_status()["state"] == "ready"


@on_stage(gpu_nodes=3)
async def test_hosts_go_from_the_vgpu_manager_to_an_nvidiadriver_once_they_are_free(stage: Stage) -> None:
    await stage.installed()
    await with_manager(stage)
    doubles = Doubles(stage)
    await label_pools(stage, a=" ".join(HOSTS))
    await make(stage, nvidia_driver("a", **OURS), nvidia_driver("default", default=True))
    await switch(stage, to_manager=False)
    await stage.until(lambda: stage.driver("gpu-2") == OLD)
    await stage.rest(300)
    assert (loaded(stage), runs(stage, "vm"), torn(stage), doubles.seen) == ([MANAGED, OLD], True, [], set())
    await end(stage, "vm")
    await stage.until(lambda: loaded(stage) == [OLD, OLD] and hosts(stage) == set(HOSTS))
    await stage.rest(300)
    assert (loaded(stage), torn(stage), doubles.seen, stage.cordons()) == ([OLD, OLD], [], set(), [])
    assert not stage.pods(names.VGPU_MANAGER_APP)


@on_stage(gpu_nodes=3)
async def test_hosts_that_no_nvidiadriver_selects_keep_the_vgpu_managers_driver_until_it_is_switched_off(stage: Stage) -> None:
    await stage.installed()
    await with_manager(stage)
    await label_pools(stage, a="gpu-2")
    await make(stage, nvidia_driver("a", **OURS))
    await switch(stage, to_manager=False)
    await stage.until(lambda: stage.driver("gpu-2") == OLD)
    await end(stage, "vm")
    await stage.rest(300)
    assert (loaded(stage), torn(stage)) == ([MANAGED, OLD], [])
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.until(lambda: loaded(stage) == ["", ""] and not stage.pods(names.VGPU_MANAGER_APP))
    assert torn(stage) == []


@on_stage(gpu_nodes=3)
async def test_hosts_that_go_to_and_fro_end_with_one_driver(stage: Stage) -> None:
    await with_machine(stage, default=False)
    doubles = Doubles(stage)
    for seconds, to_manager in ((2, True), (5, False), (20, True), (40, False), (1, True)):
        await switch(stage, to_manager=to_manager)
        await stage.rest(seconds)
    await end(stage, "vm")
    for to_manager in (False, True, False, True):
        await switch(stage, to_manager=to_manager)
        await stage.rest(7)
    await stage.until(lambda: managed(stage) == set(HOSTS) and loaded(stage) == [MANAGED, MANAGED])
    await stage.rest(300)
    assert (loaded(stage), torn(stage), doubles.seen, stage.cordons()) == ([MANAGED, MANAGED], [], set(), [])


@on_stage(gpu_nodes=3)
async def test_a_machine_that_comes_as_hosts_go_to_the_vgpu_manager_keeps_its_driver(stage: Stage) -> None:
    """The machine comes between the decision and what is done."""
    await with_machine(stage, default=False)
    await switch(stage, to_manager=True)
    await stage.rest(60)
    came: list[str] = []

    def come(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method == "DELETE" and "/daemonsets/" in request.path and not came:
            came.append(request.path)
            run_machine(stage, "late", "gpu-2")
        return proceed()

    stage.transport.interfere = come
    await end(stage, "vm")
    await stage.until(lambda: bool(came) and runs(stage, "late"))
    await stage.rest(300)
    assert (stage.driver("gpu-2"), runs(stage, "late"), torn(stage)) == (OLD, True, [])
    assert "on node gpu-2 has gone (1 in all)" in stage.condition()["message"]
    await end(stage, "late")
    await stage.until(lambda: managed(stage) == set(HOSTS) and loaded(stage) == [MANAGED, MANAGED])
    assert torn(stage) == []


@on_stage(gpu_nodes=3)
async def test_a_machine_that_comes_as_the_vgpu_manager_is_switched_off_keeps_its_driver(stage: Stage) -> None:
    await stage.installed()
    await with_manager(stage)
    await stage.patch_policy("vgpuManager/enabled", False)
    await stage.rest(60)
    came: list[str] = []

    def come(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if request.method == "GET" and "spec.nodeName" in str(request.query) and not came:
            came.append(request.path)
            run_machine(stage, "late", "gpu-2")
        return proceed()

    stage.transport.interfere = come
    await end(stage, "vm")
    await stage.until(lambda: bool(came) and runs(stage, "late"), within=60)
    await stage.rest(300)
    assert (stage.driver("gpu-2"), runs(stage, "late"), torn(stage)) == (MANAGED, True, [])
    await end(stage, "late")
    await stage.until(lambda: loaded(stage) == ["", ""] and not stage.pods(names.VGPU_MANAGER_APP))
    assert torn(stage) == []


def begins(stage: Stage, node: str, request: Request) -> bool:
    """Tell whether a request begins to hand a host over: it takes its device plugin, or the pod that brings its driver."""
    if request.method == "PATCH" and request.path.endswith(f"/nodes/{node}"):
        return b"sandbox-device-plugin" in request.body
    return request.method == "DELETE" and any(
        brings(pod) and pod["spec"].get("nodeName") == node and request.path.endswith(pod["metadata"]["name"])
        for pod in stage.pods())


@pytest.mark.parametrize("bound", [False, True], ids=["scheduled", "bound"])
@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("to_manager", [True, False])
def test_a_machine_that_comes_to_a_host_which_is_handed_over_keeps_its_driver(to_manager: bool, gap: float, bound: bool) -> None:
    """It is put there by the scheduler, or names its node, while one driver has yet to go and the other to come."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        if to_manager:
            await with_machine(stage, default=False)
        else:
            await stage.installed()
            await with_manager(stage)
            await label_pools(stage, a=" ".join(HOSTS))
            await make(stage, nvidia_driver("a", **OURS))
        doubles, begun = Doubles(stage), []

        def note(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            begun.extend([request.path] if begins(stage, "gpu-2", request) else [])
            return proceed()

        stage.transport.interfere = note
        await switch(stage, to_manager=to_manager)
        if to_manager:
            await stage.rest(60)
            await end(stage, "vm")
        await stage.until(lambda: bool(begun))
        await stage.rest(gap)
        if bound:
            run_machine(stage, "late", "gpu-2")
        else:
            ask_for_a_gpu(stage, "gpu-2", "late", VM_RESOURCE)
        await stage.rest(300)
        assert (torn(stage), doubles.seen, stage.cordons()) == ([], set(), [])
        assert runs(stage, "late") or bound, "it finds its GPU before or after"
        for kind in ("deployments.apps", "replicasets.apps", "pods"):
            for one in stage.sandbox.store.list(kind, "ml"):
                stage.sandbox.store.delete(kind, "ml", one["metadata"]["name"])
        wanted = MANAGED if to_manager else OLD
        await stage.until(lambda: loaded(stage) == [wanted, wanted])
        await stage.rest(120)
        assert (torn(stage), doubles.seen, stage.cordons()) == ([], set(), [])
        assert all(int(stage.node(node)["status"]["allocatable"].get(VM_RESOURCE, 0)) for node in HOSTS)

    scenario()


async def _manager_off(stage: Stage) -> None:
    await stage.installed()
    await with_manager(stage)
    await end(stage, "vm")
    await stage.rest(60)
    await stage.patch_policy("vgpuManager/enabled", False)


async def _vfio_off(stage: Stage) -> None:
    await stage.installed()
    await stage.patch_policy("sandboxWorkloads", {"enabled": True})
    for node in HOSTS:
        await stage.label(node, names.WORKLOAD_CONFIG, PASSTHROUGH)
    await stage.until(lambda: all(is_host(stage, node) for node in HOSTS))
    await stage.rest(100)
    await stage.patch_policy("vfioManager", {"enabled": False})


async def _superseded(stage: Stage) -> None:
    await with_machine(stage, default=False)
    await end(stage, "vm")
    await stage.rest(60)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a")
    await make(stage, nvidia_driver("a"))


async def _not_placed(stage: Stage) -> None:
    await with_machine(stage, default=False)
    await end(stage, "vm")
    await stage.patch_policy("driver/useNvidiaDriverCRD", False)
    await stage.rest(60)
    await stage.user.delete(resources.NVIDIA_DRIVERS, "a")


def drops(stage: Stage, request: Request) -> bool:
    """Tell whether a request begins to take the drivers of hosts, with their DaemonSet or what offers their GPUs."""
    if request.method == "PATCH" and request.path.endswith("/nodes/gpu-2"):
        return b"sandbox-device-plugin" in request.body
    return request.method == "DELETE" and "/daemonsets/" in request.path and stage.driver("gpu-2") != ""


@pytest.mark.parametrize("gap", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("to_manager", [True, False])
def test_a_machine_that_names_a_cordoned_host_which_is_handed_over_keeps_its_driver(to_manager: bool, gap: float) -> None:
    """The cordon is somebody else's, and stays."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        if to_manager:
            await with_machine(stage, default=False)
            await end(stage, "vm")
        else:
            await stage.installed()
            await with_manager(stage)
            await label_pools(stage, a=" ".join(HOSTS))
            await make(stage, nvidia_driver("a", **OURS))
        begun: list[str] = []

        def note(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            begun.extend([request.path] if begins(stage, "gpu-2", request) else [])
            return proceed()

        await stage.cordon("gpu-2")
        await stage.rest(60)
        stage.transport.interfere = note
        await switch(stage, to_manager=to_manager)
        await stage.until(lambda: bool(begun))
        await stage.rest(gap)
        run_machine(stage, "late", "gpu-2")
        await stage.rest(300)
        assert torn(stage) == []
        await end(stage, "late")
        wanted = MANAGED if to_manager else OLD
        await stage.until(lambda: stage.driver("gpu-2") == wanted)
        await stage.rest(120)
        assert torn(stage) == []
        assert stage.cordons() == ["gpu-2"] or not to_manager, "the driver manager of an NVIDIADriver lifts any cordon"
        assert int(stage.node("gpu-2")["status"]["allocatable"].get(VM_RESOURCE, 0))
        assert "changing" not in stage.node("gpu-2")["metadata"]["annotations"].get(names.UPGRADE_RECORD, "")

    scenario()


@pytest.mark.parametrize("bound", [False, True], ids=["scheduled", "bound"])
@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5, 3.0])
@pytest.mark.parametrize("switch_off", [_manager_off, _vfio_off, _superseded, _not_placed])
def test_a_machine_that_comes_as_all_hosts_lose_their_driver_keeps_it(
        switch_off: Callable[[Stage], Awaitable[None]], gap: float, bound: bool) -> None:
    """Their DaemonSet goes together with its pods."""
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        begun: list[str] = []

        def note(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            begun.extend([request.path] if drops(stage, request) else [])
            return proceed()

        stage.transport.interfere = note
        await switch_off(stage)
        await stage.until(lambda: bool(begun), within=60)
        await stage.rest(gap)
        if bound:
            run_machine(stage, "late", "gpu-2")
        else:
            ask_for_a_gpu(stage, "gpu-2", "late", VM_RESOURCE)
        await stage.rest(300)
        assert (torn(stage), stage.cordons()) == ([], [])
        for kind in ("deployments.apps", "replicasets.apps", "pods"):
            for one in stage.sandbox.store.list(kind, "ml"):
                stage.sandbox.store.delete(kind, "ml", one["metadata"]["name"])
        await stage.until(lambda: loaded(stage) == ["", ""])
        await stage.rest(120)
        assert (torn(stage), stage.cordons()) == ([], [])
        assert all(stage.labels(node).get(names.DEPLOY_PREFIX + "sandbox-device-plugin") for node in HOSTS)

    scenario()


@on_stage(gpu_nodes=3)
async def test_a_host_whose_device_plugin_does_not_stop_keeps_no_other_cordoned_for_ever(stage: Stage) -> None:
    await stage.installed()
    await with_manager(stage)
    await end(stage, "vm")
    await stage.rest(60)
    (plugin,) = stage.pods("nvidia-sandbox-device-plugin-daemonset", "gpu-1")
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    await stage.user.patch_merge(resources.PODS, plugin["metadata"]["name"], held, names.DEFAULT_NAMESPACE)
    seen: list[bool] = []
    stage.sandbox.store.subscribe(lambda event: seen.append(bool(event.obj["spec"].get("unschedulable")))
                                  if event.obj["metadata"]["name"] == "gpu-2" else None, "nodes")
    passes = stage.operator.labels.passes
    await stage.patch_policy("vgpuManager/enabled", False)
    await stage.rest(30)
    assert (loaded(stage), stage.cordons()) == ([MANAGED, MANAGED], list(HOSTS))
    first, second = [reason_of(await explanation_of(stage, node)) for node in HOSTS]
    name = f"{names.DEFAULT_NAMESPACE}/{plugin['metadata']['name']}"
    assert first == f"waits until pod {name}, which offers its GPUs, has stopped: its driver goes after that"
    assert second.startswith("nothing offers its GPUs any more: its driver, pod gpu-operator/nvidia-vgpu-manager-daemonset-")
    assert second.endswith(", goes once that is so on all hosts that lose it, after 45 s at the latest")
    await stage.until(lambda: loaded(stage) == ["", ""], within=60)
    assert "it is uncordoned once pod" in reason_of(await explanation_of(stage, "gpu-1"))
    await stage.until(lambda: stage.cordons() == ["gpu-1"])
    assert [each for each, before in zip(seen, [False, *seen], strict=False) if each is not before] == [True, False]
    await stage.rest(1800)
    assert stage.operator.labels.passes - passes < 200, "nothing is looked at again and again"
    assert "has not stopped in its time" in reason_of(await explanation_of(stage, "gpu-1"))


@pytest.mark.parametrize("pool", ["gpu-1", "gpu-1 gpu-2"])
def test_hosts_go_back_to_the_vgpu_manager_though_a_pod_of_an_nvidiadriver_waited_for_its_host(pool: str) -> None:
    @on_stage(gpu_nodes=3)
    async def scenario(stage: Stage) -> None:
        await stage.label("gpu-3", names.NFD_OS_VERSION, "22.04")  # as on the hosts
        await stage.installed()
        await with_manager(stage)
        doubles = Doubles(stage)
        await label_pools(stage, a=pool)
        await make(stage, nvidia_driver("a", **OURS), nvidia_driver("default", default=True))
        await switch(stage, to_manager=False)
        await stage.rest(120)
        assert [pod for pod in stage.pods() if brings(pod) and not pod["spec"].get("nodeName")]
        await switch(stage, to_manager=True)
        await stage.until(lambda: managed(stage) == set(HOSTS) and loaded(stage) == [MANAGED, MANAGED])
        await stage.rest(300)
        assert (loaded(stage), runs(stage, "vm"), torn(stage), doubles.seen) == ([MANAGED, MANAGED], True, [], set())
        assert stage.policy_status()["state"] == "ready"

    scenario()
