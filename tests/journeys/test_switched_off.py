"""Drivers that the ClusterPolicy switches off: which go, which run on, and what is said of their nodes."""

from __future__ import annotations

from gpuward.sandbox.machine import HOST_DRIVER_ANNOTATION
from tests.journeys.looking import condition_of, explanation_of, headline_of, reason_of
from tests.journeys.stage import OLD, Object, Stage, on_stage, policy
from tests.journeys.test_nvidiadriver import driver_pods


class OnHosts(Stage):
    """Every node has a driver of its own, and a setting of precompiled drivers is left over."""

    def _nodes(self) -> list[Object]:
        nodes = super()._nodes()
        for node in nodes:
            node["metadata"].setdefault("annotations", {})[HOST_DRIVER_ANNOTATION] = OLD
        return nodes

    def _policy(self) -> Object:
        body = policy()
        body["spec"]["driver"] |= {"enabled": False, "usePrecompiled": True, "version": "580"}
        return body


@on_stage(gpu_nodes=2, kind=OnHosts)
async def test_hosts_with_drivers_of_their_own_wait_for_no_precompiled_one(stage: Stage) -> None:
    await stage.until(lambda: stage.policy_status().get("state") == "ready")
    await stage.rest(120)
    assert condition_of(stage) == ("", "", ""), "no node was ever to be upgraded"
    assert {stage.hold(node) for node in stage.states()} == {""}
    assert driver_pods(stage) == []
    told = await explanation_of(stage, "gpu-1")
    assert (told.status, reason_of(told)) == (None, "ClusterPolicy cluster-policy has driver.enabled: false")
    assert await headline_of(stage) == "ClusterPolicy cluster-policy: driver.enabled is false, so no driver is managed"
