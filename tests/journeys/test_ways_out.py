"""What `gpuward explain` offers where NVIDIADrivers are in each other's way: whoever obeys gets no other conflict by it, no node
that is held instead, and what it says of drivers and evictions comes true.
"""

from __future__ import annotations

import pytest

from tests.journeys.looking import condition_of, explanation_of, obey
from tests.journeys.stage import NEW, Object, Stage, on_stage
from tests.journeys.test_hosts_left import OURS
from tests.journeys.test_moves import with_workloads
from tests.journeys.test_nvidiadriver import ALL_AT_ONCE, make, nvidia_driver, set_driver

POOL, ZONE = {"pool": "p"}, {"zone": "z"}
A, B = nvidia_driver("a", ALL_AT_ONCE, nodeSelector=POOL, version=NEW), nvidia_driver("b", ALL_AT_ONCE, nodeSelector=ZONE)


async def in_conflict(stage: Stage, *drivers: Object) -> None:
    """Let the drivers a and b select gpu-2, a also gpu-1 and b gpu-3."""
    await stage.installed()
    for node, pool, zone in ("gpu-1", "p", None), ("gpu-2", "p", "z"), ("gpu-3", None, "z"):
        await stage.label(node, "pool", pool)
        await stage.label(node, "zone", zone)
    await with_workloads(stage)
    await make(stage, *drivers)
    await stage.patch_policy("driver/useNvidiaDriverCRD", True)
    await stage.rest(900)


@pytest.mark.parametrize("hosts", [False, True])
def test_no_second_default_is_offered(hosts: bool) -> None:
    @on_stage(gpu_nodes=4)
    async def story(stage: Stage) -> None:
        await in_conflict(stage, A, B, nvidia_driver("d", default=True, **(OURS if hosts else {})))
        told = (await explanation_of(stage, "gpu-2")).remedies
        assert [each.do.partition(":")[0] for each in told] == [
            "let spec.nodeSelector of NVIDIADriver a select no node that b selects",
            "let spec.nodeSelector of NVIDIADriver b select no node that a selects",
            "delete NVIDIADriver a", "delete NVIDIADriver b"]
        before = {pod["metadata"]["uid"] for pod in stage.workload_pods(node="gpu-1")}
        if hosts:
            assert told[2].do.endswith("b then has the node in question; of its other nodes, d, which is for hosts of vGPUs, "
                                       "then has 1 (its driver stays)")
            assert "evicted" not in told[2].risk
        else:
            assert told[2].do.endswith("of its other nodes, d then has 1 (its driver is replaced)")
            assert told[2].risk.endswith("; pods that use the GPUs of its other nodes are evicted, node after node")
        await obey(stage, told[2].commands[0])
        await stage.rest(3600)
        assert (stage.hold("gpu-1"), stage.hold("gpu-2"), stage.hold("gpu-3")) == ("WrongDriverType" if hosts else "", "", "")
        assert (condition_of(stage)[1] == "UpToDate") is not hosts
        assert (before <= {pod["metadata"]["uid"] for pod in stage.workload_pods()}) is hosts

    story()


@on_stage(gpu_nodes=3)
async def test_where_three_are_in_conflict_what_is_offered_frees_the_node(stage: Stage) -> None:
    await in_conflict(stage, nvidia_driver("all", ALL_AT_ONCE, nodeSelector={}), A, B)
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        told = (await explanation_of(stage, node)).remedies
        assert told
        assert not any("has no NVIDIADriver" in each.do or "held by something else" in each.then for each in told)
        assert all(", and " in each.do for each in told), "one of the three changed leaves two in conflict"
    assert [each.commands for each in told if each.do == (
        "let spec.nodeSelector of NVIDIADriver a select no node that all or b selects, and delete NVIDIADriver all")] == [
        ("kubectl edit nvidiadriver a", "kubectl delete nvidiadriver all")]
    await set_driver(stage, "a", {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}})
    await obey(stage, "kubectl delete nvidiadriver all")
    await stage.until(lambda: condition_of(stage)[1] == "UpToDate", within=7200)


@on_stage(gpu_nodes=3)
async def test_no_driver_for_hosts_is_offered_to_containers(stage: Stage) -> None:
    await in_conflict(stage, A, nvidia_driver("h", nodeSelector=ZONE, **OURS))
    told = (await explanation_of(stage, "gpu-2")).remedies
    assert [each.do for each in told] == [
        "let spec.nodeSelector of NVIDIADriver h select no node that a selects",
        "make NVIDIADriver h the default, without a nodeSelector: a then has the node in question",
        "delete NVIDIADriver h: a then has the node in question; of its other nodes, 1 has no NVIDIADriver (its driver "
        "stays)"]
    assert not any("evicted" in each.risk for each in told)
    await obey(stage, told[1].commands[0])
    await stage.until(lambda: stage.driver("gpu-2") == NEW and not stage.hold("gpu-2"), within=3600)


@on_stage(gpu_nodes=3)
async def test_a_default_that_takes_nodes_of_nobody_says_so(stage: Stage) -> None:
    await in_conflict(stage, nvidia_driver("a", ALL_AT_ONCE, nodeSelector={"zone": "z", "pool": "p"}, version=NEW), B)
    told = (await explanation_of(stage, "gpu-2")).remedies
    (default,) = (each for each in told if each.do.startswith("make NVIDIADriver a the default"))
    assert default.do.endswith("b then has the node in question; of the nodes that no NVIDIADriver selects now, a then has 1 "
                               "(its driver is replaced)")
    assert default.risk == "pods that use the GPUs of nodes that no NVIDIADriver selects now are evicted, node after node"
    await obey(stage, default.commands[0])
    await stage.until(lambda: condition_of(stage)[1] == "UpToDate", within=7200)
    assert stage.driver("gpu-1") == NEW
