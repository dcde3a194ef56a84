"""`gpuward cleanup`: what an operator left on nodes goes, what people set stays, and nothing goes that is in use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuward import names
from gpuward.cli.cleanup import clean_nodes
from gpuward.errors import GpuwardError
from gpuward.model.states import State
from tests.cli.verbs import said
from tests.journeys.stage import POLICY, Stage, on_stage
from tests.journeys.test_unplaced import installed_by, is_served

POLICIES = "clusterpolicies.nvidia.com"


async def cleanup(stage: Stage, *, unless_used: bool = False, dry_run: bool = False, timeout: float = 300.0) -> list[str]:
    lines = clean_nodes(stage.client, names.DEFAULT_NAMESPACE, timeout=timeout, unless_used=unless_used, dry_run=dry_run)
    return [line for line in await said(lines) if not line.startswith("waiting, for up to ")]


def marks(stage: Stage, node: str) -> set[str]:
    """Return the labels and annotations of a node that an operator or a person set: feature discovery takes its own away."""
    meta = stage.node(node)["metadata"]
    keys = [key for key in (*meta["labels"], *meta.get("annotations", ())) if key.startswith(("nvidia.com/", "gpuward.io/"))]
    return {key for key in keys if not _is_discoverys(key)}


def _is_discoverys(key: str) -> bool:
    own = key == names.GPU_PRESENT or key.startswith(names.DEPLOY_PREFIX)
    return key.startswith((names.DRIVER_VERSION_PREFIX, "nvidia.com/gfd.", *names.GFD_PREFIXES)) and not own


async def uninstall(stage: Stage) -> None:
    """Do what `helm uninstall` does: delete the operator and the policies, and wait for nothing."""
    await stage.kill_operator()
    for key in (POLICIES, "nvidiadrivers.nvidia.com"):
        for obj in stage.sandbox.store.list(key):
            stage.sandbox.store.delete(key, None, obj["metadata"]["name"], propagation="Background")


@pytest.mark.parametrize("owner", ["clusterpolicy", "nvidiadriver", "precompiled"])
def test_nodes_are_as_they_were_before_the_operator_came(owner: str) -> None:
    @on_stage(gpu_nodes=3)
    async def play(stage: Stage) -> None:
        before = {node: marks(stage, node) for node in stage.states()}
        await installed_by(stage, owner)
        await stage.until(lambda: is_served(stage))
        assert all(marks(stage, node) > before[node] for node in before)
        await uninstall(stage)
        told = await cleanup(stage)
        assert {node: marks(stage, node) for node in before} == before
        assert sorted(line.partition(":")[0] for line in told[:3]) == ["node gpu-1", "node gpu-2", "node gpu-3"]
        assert not stage.sandbox.store.list("leases.coordination.k8s.io")
        assert await cleanup(stage) == ["no node has anything of a GPU operator"]

    play()


@on_stage(gpu_nodes=1)
async def test_what_an_upgrade_and_the_default_layout_leave_goes_and_a_chosen_layout_stays(stage: Stage) -> None:
    before = marks(stage, "gpu-1")
    await stage.installed()
    await stage.upgrade_to()
    await stage.upgraded()
    assert stage.labels("gpu-1")[names.DEPLOY_PREFIX + "nvsm"] == ""
    await stage.label("gpu-1", names.MIG_CONFIG, "all-disabled")
    await uninstall(stage)
    await cleanup(stage)
    assert marks(stage, "gpu-1") == before
    await stage.label("gpu-1", names.MIG_CONFIG, "all-1g.10gb")
    assert await cleanup(stage) == ["no node has anything of a GPU operator"]


@on_stage(gpu_nodes=1)
async def test_what_it_waits_for_is_said_at_once(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.store.delete(POLICIES, None, POLICY, propagation="Background")
    begun = stage.clock.now()
    with pytest.raises(GpuwardError, match=r"^DaemonSet .*: nothing was cleaned up$"):
        await cleanup(stage, dry_run=True)
    assert stage.clock.now() < begun + 10
    lines = clean_nodes(stage.client, names.DEFAULT_NAMESPACE, timeout=300, unless_used=False, dry_run=False)
    first = await anext(aiter(lines))
    assert first.startswith("waiting, for up to 5m0s: DaemonSet ")
    assert stage.clock.now() < begun + 20


@on_stage(gpu_nodes=2, upgrade={"maxUnavailable": "100%"})
async def test_our_cordons_are_lifted_and_what_people_set_stays(stage: Stage) -> None:
    await stage.installed()
    await stage.cordon("gpu-2")
    await stage.label("gpu-2", names.DEPLOY_PREFIX + "dcgm-exporter", "false")
    await stage.label("gpu-2", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to()
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    assert stage.cordons() == ["gpu-1", "gpu-2"]
    await uninstall(stage)
    assert any("uncordoned" in line for line in await cleanup(stage))
    assert stage.cordons() == ["gpu-2"], "somebody cordoned it"
    assert marks(stage, "gpu-1") == set()
    assert marks(stage, "gpu-2") == {names.DEPLOY_PREFIX + "dcgm-exporter", names.UPGRADE_SKIP}


@on_stage(gpu_nodes=2)
async def test_nothing_is_taken_from_nodes_that_are_in_use(stage: Stage) -> None:
    await stage.installed()
    before = [stage.node(node) for node in stage.states()]
    with pytest.raises(GpuwardError, match=rf"there is ClusterPolicy {POLICY}, whose operands run .*: nothing was cleaned up"):
        await cleanup(stage)
    (told,) = await cleanup(stage, unless_used=True)
    assert told.startswith(f"there is ClusterPolicy {POLICY}, ")
    await stage.kill_operator()
    stage.sandbox.store.delete(POLICIES, None, POLICY, propagation="Orphan")
    with pytest.raises(GpuwardError, match=r"DaemonSet .*gpu-operator/nvidia-driver-daemonset.* has pods where nodes have the"):
        await cleanup(stage, timeout=60)
    assert [_marked(stage.node(node)) for node in stage.states()] == [_marked(node) for node in before]


@on_stage(gpu_nodes=1)
async def test_an_operator_that_runs_is_named(stage: Stage) -> None:
    await stage.installed()
    await uninstall(stage)
    await stage.rest(60)
    stage.sandbox.apply({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names.LEADER_LEASE, "namespace": names.DEFAULT_NAMESPACE},
        "spec": {"holderIdentity": "another_1", "renewTime": _in_a_moment(stage), "leaseDurationSeconds": 3600},
    })
    with pytest.raises(GpuwardError, match=r"operator another renewed its Lease .*; delete its Deployment first: nothing was"):
        await cleanup(stage, timeout=10)
    assert marks(stage, "gpu-1")


def _in_a_moment(stage: Stage) -> str:
    return datetime.fromtimestamp(stage.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@on_stage(gpu_nodes=1)
async def test_operands_that_are_still_there_are_waited_for_and_named(stage: Stage) -> None:
    await stage.installed()
    daemonset = stage.get("daemonsets.apps", "nvidia-driver-daemonset")
    stage.sandbox.store.modify("daemonsets.apps", names.DEFAULT_NAMESPACE, daemonset["metadata"]["name"],
                               lambda obj: obj["metadata"].update(finalizers=["example.com/kept"]))
    await uninstall(stage)
    with pytest.raises(GpuwardError, match="DaemonSet gpu-operator/nvidia-driver-daemonset has pods where"):
        await cleanup(stage, timeout=30)
    assert marks(stage, "gpu-1")


@on_stage(gpu_nodes=1)
async def test_a_dry_run_says_what_would_go(stage: Stage) -> None:
    await stage.installed()
    await uninstall(stage)
    await stage.rest(60)
    before = marks(stage, "gpu-1")
    (told,) = await cleanup(stage, dry_run=True)
    assert told.endswith("removed; a dry run writes nothing")
    assert marks(stage, "gpu-1") == before


def _marked(node: dict[str, Any]) -> tuple[Any, Any]:
    """Return labels and annotations but for the times in them."""
    return node["metadata"]["labels"], set(node["metadata"].get("annotations", ()))
