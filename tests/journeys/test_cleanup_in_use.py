"""`gpuward cleanup` where pods run on, where somebody installs anew meanwhile, and where a node refuses to be changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuward import names
from gpuward.cli.cleanup import clean_nodes
from gpuward.errors import Forbidden, GpuwardError
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.messages import Request, refusal
from kubesandbox.sim.objects import is_ready
from tests.cli.verbs import said
from tests.journeys.stage import NEW, Stage, gpu_template, on_stage, policy
from tests.journeys.test_cleanup import cleanup, marks, uninstall
from tests.journeys.test_nvidiadriver import driver_pods, make, nvidia_driver
from tests.journeys.test_side_by_side import WAITS, Process
from tests.journeys.test_unplaced import ONE, installed_by, is_served
from tests.journeys.test_withheld import torn, with_notebooks

OWNERS = ("clusterpolicy", "nvidiadriver", "precompiled")
LEASES = "leases.coordination.k8s.io"


async def installed_anew(stage: Stage, owner: str) -> str:
    """Install another driver than the nodes had, and return its version."""
    version = "590" if owner == "precompiled" else NEW
    body = policy()
    body["spec"]["driver"] |= {"version": version, "usePrecompiled": owner == "precompiled"}
    if owner == "nvidiadriver":
        body["spec"]["driver"]["useNvidiaDriverCRD"] = True
        await make(stage, nvidia_driver("default", ONE, default=True, version=version))
    await stage.user.create(resources.CLUSTER_POLICIES, body)
    await stage.restart_operator()
    return version


@pytest.mark.parametrize("owner", OWNERS)
def test_a_driver_that_is_loaded_under_pods_is_not_forgotten(owner: str) -> None:
    @on_stage(gpu_nodes=2)
    async def play(stage: Stage) -> None:
        await installed_by(stage, owner)
        await stage.until(lambda: is_served(stage))
        loaded = stage.drivers()
        await with_notebooks(stage)
        for node in stage.states():
            await stage.deploy(f"train-{node}", node=node)
        await uninstall(stage)
        told = await cleanup(stage)
        assert all(f"{names.UPGRADE_RECORD} stays and tells which driver is loaded, as pod {WORKLOAD_NAMESPACE}/" in line
                   for line in told[:2])
        assert [marks(stage, node) for node in stage.states()] == [{names.UPGRADE_RECORD}, {names.UPGRADE_RECORD}]
        again = await cleanup(stage)
        assert [line.partition(": ")[2] for line in again] == [line.partition("; ")[2] for line in told[:2]], "nothing changes"
        for node in stage.states():  # what had the driver open ends; a notebook that has it not is left
            stage.sandbox.store.modify("deployments.apps", WORKLOAD_NAMESPACE, f"train-{node}", _without_pods)
        await stage.rest(120)
        assert stage.drivers() == loaded
        version = await installed_anew(stage, owner)
        await stage.until(lambda: torn(stage) or stage.finished(version), within=3600)
        assert torn(stage) == []

    play()


def _without_pods(obj: dict[str, Any]) -> None:
    obj["spec"]["replicas"] = 0


@on_stage(gpu_nodes=2)
async def test_it_is_forgotten_once_nothing_runs_on_it(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train", node="gpu-2")
    await uninstall(stage)
    await cleanup(stage)
    assert [marks(stage, node) for node in stage.states()] == [set(), {names.UPGRADE_RECORD}]
    stage.sandbox.store.delete("deployments.apps", WORKLOAD_NAMESPACE, "train")
    await stage.rest(120)
    assert await cleanup(stage) == ["node gpu-2: 1 annotation removed"]
    assert [marks(stage, node) for node in stage.states()] == [set(), set()]


def test_where_pods_may_not_be_listed_they_may_be_there() -> None:
    def unseen(request: Request, proceed: Callable[[], Any]) -> Any:
        return refusal(Forbidden("pods is forbidden")) if hidden and request.path.endswith("/pods") else proceed()

    hidden = False

    @on_stage(gpu_nodes=1, interfere=unseen)
    async def play(stage: Stage) -> None:
        nonlocal hidden
        await stage.installed()
        await uninstall(stage)
        hidden = True
        told = await cleanup(stage)
        assert told[0].endswith("which driver is loaded, as its pods may not be listed, and may run on it")
        assert marks(stage, "gpu-1") == {names.UPGRADE_RECORD}

    play()


@pytest.mark.parametrize("way", ["affinity", "selector"])
def test_a_daemonset_of_a_user_keeps_its_pods(way: str) -> None:
    @on_stage(gpu_nodes=2)
    async def play(stage: Stage) -> None:
        await stage.installed()
        template = gpu_template("train")
        if way == "selector":
            template["spec"]["nodeSelector"] = {names.GPU_PRESENT: "true"}
        else:
            template["spec"]["affinity"] = _required({"key": names.GPU_PRESENT, "operator": "In", "values": ["true"]})
        stage.sandbox.apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "train", "namespace": "default"},
                             "spec": {"selector": {"matchLabels": {"app": "train"}}, "template": template}})
        await stage.until(lambda: sum(map(is_ready, stage.pods("train", namespace="default"))) == 2)
        before = _uids(stage.pods("train", namespace="default"))
        await uninstall(stage)
        told = await cleanup(stage, unless_used=True, timeout=60)
        await stage.rest(30)
        assert _uids(stage.pods("train", namespace="default")) == before
        assert told == ["DaemonSet default/train has pods where nodes have the labels: nothing is cleaned up"]

    play()


def _required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [term]} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def _uids(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


@on_stage(gpu_nodes=2)
async def test_the_label_by_which_a_pod_chose_its_node_stays(stage: Stage) -> None:
    await stage.installed()
    template = gpu_template("train")
    template["spec"]["nodeSelector"] = {names.GPU_PRESENT: "true"}
    stage.sandbox.apply(deployment("train", WORKLOAD_NAMESPACE, 1, template))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods("train"))) == 1)
    (pod,) = stage.workload_pods("train")
    place, (other,) = pod["spec"]["nodeName"], {"gpu-1", "gpu-2"} - {pod["spec"]["nodeName"]}
    await uninstall(stage)
    told = await cleanup(stage)
    assert any(f"{names.GPU_PRESENT} stays, as pod {WORKLOAD_NAMESPACE}/{pod['metadata']['name']} chose" in line for line in told)
    assert marks(stage, place) == {names.GPU_PRESENT, names.UPGRADE_RECORD}
    assert marks(stage, other) == set()


def test_one_node_that_refuses_keeps_no_other() -> None:
    def interfere(request: Request, proceed: Callable[[], Any]) -> Any:
        if refuses and request.method == "PATCH" and request.path.endswith("/nodes/gpu-1"):
            return refusal(Forbidden('admission webhook "keep" denied the request: no'))
        return proceed()

    refuses = False

    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 0}, interfere=interfere)
    async def play(stage: Stage) -> None:
        nonlocal refuses
        await stage.installed()
        await stage.upgrade_to()
        await stage.until(lambda: len(stage.cordons()) == 3)
        await uninstall(stage)
        refuses = True
        _lease(stage, "old_1", seconds=1)
        with pytest.raises(GpuwardError, match="not cleaned up: node gpu-1; run it again once nothing refuses that"):
            await cleanup(stage, unless_used=True)
        assert stage.cordons() == ["gpu-1"]
        assert not stage.sandbox.store.list(LEASES)

    play()


@pytest.mark.parametrize("owner", OWNERS)
def test_a_cleanup_that_is_slow_harms_nobody_who_installs_anew(owner: str) -> None:
    @on_stage(gpu_nodes=3)
    async def play(stage: Stage) -> None:
        await installed_by(stage, owner)
        await stage.until(lambda: is_served(stage))
        await with_notebooks(stage)
        await uninstall(stage)
        await stage.sandbox.until(lambda: not driver_pods(stage), 600)
        went = torn(stage)  # a driver that nothing has open goes with its pod
        work = asyncio.create_task(said(clean_nodes(
            _slow(stage, 100), names.DEFAULT_NAMESPACE, timeout=240, unless_used=True, dry_run=False)))
        await stage.rest(20)
        body = policy()
        if owner == "nvidiadriver":
            body["spec"]["driver"]["useNvidiaDriverCRD"] = True
            await make(stage, nvidia_driver("default", ONE, default=True))
        if owner == "precompiled":
            body["spec"]["driver"] |= {"usePrecompiled": True, "version": "580"}
        await stage.user.create(resources.CLUSTER_POLICIES, body)
        await stage.restart_operator()
        await stage.rest(60)
        await stage.until(lambda: sum(map(is_ready, driver_pods(stage))) == 3)
        before = _uids(driver_pods(stage))
        stage.client.patch_json = _slowly(stage.client, 1)  # type: ignore[method-assign]
        (told,) = await work
        await stage.rest(600)
        assert told.startswith("there is ClusterPolicy cluster-policy")
        assert torn(stage) == went
        assert _uids(driver_pods(stage)) == before

    play()


def _lease(stage: Stage, holder: str, *, seconds: int) -> None:
    """Have an operator hold the Lease for so long."""
    now = datetime.fromtimestamp(stage.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    stage.sandbox.apply({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names.LEADER_LEASE, "namespace": names.DEFAULT_NAMESPACE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": now},
    })


def _slow(stage: Stage, seconds: float) -> Client:
    client = Client(stage.sandbox.transport())
    client.patch_json = _slowly(client, seconds)  # type: ignore[method-assign]
    return client


def _slowly(client: Client, seconds: float) -> Any:
    patch = client.patch_json

    async def patch_json(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(seconds)
        return await patch(*args, **kwargs)

    return patch_json


@pytest.mark.parametrize("when", ["between two nodes", "at the end"])
def test_the_lease_of_an_operator_that_came_meanwhile_stays(when: str) -> None:
    @on_stage(gpu_nodes=2)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await uninstall(stage)
        await stage.sandbox.until(lambda: not driver_pods(stage), 600)
        work = asyncio.create_task(said(clean_nodes(
            _slow(stage, 30), names.DEFAULT_NAMESPACE, timeout=240, unless_used=True, dry_run=False)))
        await stage.rest(20 if when == "between two nodes" else 50)
        _lease(stage, "new_1", seconds=3600)
        told = await work
        assert [lease["metadata"]["name"] for lease in stage.sandbox.store.list(LEASES)] == [names.LEADER_LEASE]
        assert "operator new renewed its Lease" in told[-1]
        assert sum(bool(marks(stage, node)) for node in stage.states()) == (1 if when == "between two nodes" else 0)

    play()




@pytest.mark.parametrize("owner", OWNERS)
def test_an_operator_that_begins_meanwhile_waits_until_it_is_over(owner: str) -> None:
    """Policies come as the last look is over, and the operator before the first write; the nodes' machines were in service."""
    @on_stage(gpu_nodes=2)
    async def play(stage: Stage) -> None:
        await installed_by(stage, owner)
        await stage.until(lambda: is_served(stage))
        await uninstall(stage)
        await stage.sandbox.until(lambda: not driver_pods(stage), 600)
        work = asyncio.create_task(said(clean_nodes(
            _slow(stage, 30), names.DEFAULT_NAMESPACE, timeout=240, unless_used=True, dry_run=False)))
        await stage.rest(20)
        process = Process(stage, "new")
        await stage.rest(20)
        assert process.writes == 0
        (told,) = stage.warnings(WAITS)
        assert told["holder"].startswith("gpuward-cleanup-")
        assert [line.partition(":")[0] for line in await work] == ["node gpu-1", "node gpu-2"]
        assert [marks(stage, node) for node in stage.states()] == [set(), set()]
        await stage.until(lambda: process.elector.leading)
        await process.stop()

    play()


@on_stage(gpu_nodes=1)
async def test_a_lease_that_may_not_be_written_is_said_and_nothing_is_cleaned_up(stage: Stage) -> None:
    await stage.installed()
    await uninstall(stage)
    await stage.sandbox.until(lambda: not driver_pods(stage), 600)
    before = marks(stage, "gpu-1")
    transport = stage.sandbox.transport()
    transport.interfere = lambda request, proceed: refusal(Forbidden("leases is forbidden")) if (
        request.method in ("POST", "PUT") and "/leases" in request.path) else proceed()
    lines = clean_nodes(Client(transport), names.DEFAULT_NAMESPACE, timeout=60, unless_used=False, dry_run=False)
    with pytest.raises(GpuwardError, match="cannot be held, so an operator could begin meanwhile: leases is forbidden"):
        await said(lines)
    assert marks(stage, "gpu-1") == before


@on_stage(gpu_nodes=1)
async def test_a_namespace_that_is_gone_hinders_no_cleanup(stage: Stage) -> None:
    await stage.installed()
    await uninstall(stage)
    await stage.sandbox.until(lambda: not driver_pods(stage), 600)
    lines = clean_nodes(stage.user, "gone", timeout=60, unless_used=False, dry_run=False)
    assert [line.partition(":")[0] for line in await said(lines)] == ["node gpu-1"]
    assert not stage.sandbox.store.list(LEASES, "gone")
