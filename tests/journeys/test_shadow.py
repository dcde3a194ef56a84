"""What `gpuward diff` and `gpuward shadow` say of a cluster, from reads alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuward import names
from gpuward.cli.diff import compared
from gpuward.cli.differences import looked_at
from gpuward.cli.shadow import Shadowed, shadowed
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import NEW, OLD, POLICY, Proceed, Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import label_pools, make, nvidia_driver
from tests.journeys.test_withheld import set_driver

SPACE = names.DEFAULT_NAMESPACE


def reads_only(stage: Stage) -> Client:
    """Return a client that may get, list and watch, and nothing else; Secrets it may not even get."""
    transport = stage.sandbox.transport()

    def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
        assert request.method == "GET", f"{request.method} {request.path}"
        return refusal(Forbidden("secrets is forbidden")) if "/secrets" in request.path else proceed()

    transport.interfere = refuse
    return Client(transport)


async def shadow_of(stage: Stage) -> Shadowed:
    client = reads_only(stage)
    async with looked_at(client, SPACE) as look:
        return await shadowed(client, look)


async def diff_of(stage: Stage, *files: Path) -> dict[str, str]:
    """Return what would happen to which objects."""
    _, found = await compared(reads_only(stage), [str(file) for file in files], SPACE)
    return {one.name: one.verb for one in found}


def file_of(tmp: Path, *objects: Any) -> Path:
    file = tmp / "policies.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return file


def versions(stage: Stage) -> dict[str, str]:
    """Return the version of every object but Leases and events."""
    kinds = ("nodes", "pods", "daemonsets.apps", "configmaps", "serviceaccounts", "clusterpolicies.nvidia.com", "namespaces",
             "roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "services")
    every = [each["metadata"] for kind in kinds for each in stage.sandbox.store.list(kind)]
    return {meta["uid"]: meta["resourceVersion"] for meta in every}


@on_stage(gpu_nodes=3)
async def test_where_all_is_as_wanted_nothing_differs(stage: Stage) -> None:
    await stage.installed()
    assert await diff_of(stage) == {}
    found = await shadow_of(stage)
    assert (found.differences, found.restarts, found.stuck, found.problems) == ((), {}, (), ())


@on_stage(gpu_nodes=3)
async def test_where_drivers_are_nvidia_drivers_nothing_differs_either(stage: Stage) -> None:
    await label_pools(stage, a="gpu-1")
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await make(stage, nvidia_driver("a"), nvidia_driver("b", default=True))
    await stage.installed()
    assert await diff_of(stage) == {}
    assert (await shadow_of(stage)).restarts == {}


@on_stage(gpu_nodes=3)
async def test_where_drivers_are_precompiled_nothing_differs_either(stage: Stage) -> None:
    await set_driver(stage, {"usePrecompiled": True, "version": "580"})
    await stage.installed()
    assert await diff_of(stage) == {}
    assert (await shadow_of(stage)).restarts == {}


def test_a_policy_that_is_not_applied_yet_is_compared(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        await stage.installed()
        before = versions(stage)
        body = copy.deepcopy(policy())
        body["spec"]["driver"]["version"] = NEW
        body["spec"]["dcgm"]["enabled"] = True
        body["spec"]["migManager"]["enabled"] = False
        told = await diff_of(stage, file_of(tmp_path, body))
        assert told["DaemonSet gpu-operator/nvidia-driver-daemonset"] == "change"
        assert told["DaemonSet gpu-operator/nvidia-dcgm"] == told["Service gpu-operator/nvidia-dcgm"] == "create"
        assert told["DaemonSet gpu-operator/nvidia-mig-manager"] == "delete"
        assert "DaemonSet gpu-operator/nvidia-device-plugin-daemonset" not in told
        written, found = await compared(reads_only(stage), [str(file_of(tmp_path, body))], SPACE)
        (change,) = [one for one in found if one.ref.name == names.DRIVER_APP and one.kind == "DaemonSet"]
        lines = list(change.lines())
        assert any(line.startswith("-") and f"driver:{OLD}" in line for line in lines)
        assert any(line.startswith("+") and f"driver:{NEW}" in line for line in lines)
        assert written.problems == ()
        assert versions(stage) == before
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": {
            "driver": {"version": NEW}, "dcgm": {"enabled": True}, "migManager": {"enabled": False}}})
        await stage.upgraded(NEW)
        assert await diff_of(stage) == {}

    story()


def test_what_is_wrong_with_a_policy_is_told(tmp_path: Path) -> None:
    @on_stage(gpu_nodes=1)
    async def story(stage: Stage) -> None:
        await stage.installed()
        body = copy.deepcopy(policy())
        body["spec"]["driver"]["upgradePolicy"]["maxUnavailable"] = "abc"
        written, _ = await compared(reads_only(stage), [str(file_of(tmp_path, body))], SPACE)
        assert [problem for problem in written.problems if "maxUnavailable" in problem and "'abc'" in problem]

    story()


@on_stage(gpu_nodes=3)
async def test_a_driver_that_others_have_edited_is_named_with_the_pods_that_would_restart(stage: Stage) -> None:
    await stage.installed()
    await stage.kill_operator()
    pods = {pod["metadata"]["name"] for pod in stage.pods(names.DRIVER_APP)}
    patch = {"spec": {"template": {"spec": {"containers": [
        {**container, "image": container["image"].replace(OLD, NEW)} for container in drivers(stage)]}}}}
    await stage.user.patch_merge(resources.DAEMON_SETS, names.DRIVER_APP, patch, SPACE)
    found = await shadow_of(stage)
    assert set(found.restarts) == pods
    assert [one.name for one in found.differences] == [f"DaemonSet {SPACE}/{names.DRIVER_APP}"]
    assert any("image" in why for why in found.restarts.values())


@on_stage(gpu_nodes=3)
async def test_a_node_that_is_stuck_is_named_with_why_and_what_helps(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("guarded", 1, node="gpu-3", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.driver("gpu-1") == stage.driver("gpu-2") == NEW, 3600)
    await stage.until(lambda: stage.states()["gpu-2"] == "upgrade-done" and stage.hold("gpu-3") == "BudgetBlocks")
    found = await shadow_of(stage)
    (stuck,) = found.stuck
    assert (stuck.node, stuck.reason) == ("gpu-3", "BudgetBlocks")
    assert stuck.remedies
    assert found.restarts == {}
    assert any("gpu-3" in line for line in found.lines())


def drivers(stage: Stage) -> Iterator[dict[str, Any]]:
    """Yield the containers of the driver DaemonSet."""
    yield from stage.get("daemonsets.apps", names.DRIVER_APP)["spec"]["template"]["spec"]["containers"]
