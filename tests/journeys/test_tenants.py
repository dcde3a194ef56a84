"""Who may only create pods in a namespace of his own holds no upgrade up, unless his pods do have the driver."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.store import Event
from tests.journeys.looking import explanation_of, reason_of
from tests.journeys.stage import NEW, OLD, POLICY, Stage, on_stage
from tests.journeys.test_rolloutpolicy import apply

DEFAULT = [{"name": "NVIDIA_RUNTIME_SET_AS_DEFAULT", "value": "true"}]
SPARED = [{"name": "CONTAINERD_SET_AS_DEFAULT", "value": "false"}]
ASKS = {"name": "c", "image": "registry.example/pause:1", "env": [{"name": names.VISIBLE_DEVICES, "value": "all"}]}
PRIVILEGED = {**ASKS, "securityContext": {"privileged": True}}


@pytest.mark.parametrize(("spec", "container", "labels", "held"), [
    ({}, ASKS, {}, False),
    ({"cdi": {"enabled": False}}, ASKS, {}, True),
    ({"cdi": {"enabled": False}, "toolkit": {"env": SPARED}}, ASKS, {}, False),
    ({"toolkit": {"env": DEFAULT}}, ASKS, {}, True),
    ({"toolkit": {"enabled": False}}, ASKS, {}, True),
    ({}, ASKS, {names.DEPLOY_TOOLKIT: "false"}, True),
    ({}, PRIVILEGED, {}, True),
], ids=["spared", "without CDI", "spared by hand", "default by hand", "no toolkit", "no toolkit here", "privileged"])
def test_a_variable_holds_the_driver_where_the_runtime_heeds_it(
    spec: dict[str, Any], container: dict[str, Any], labels: dict[str, str], held: bool
) -> None:
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.user.patch_merge(resources.CLUSTER_POLICIES, POLICY, {"spec": spec})
        for key, value in labels.items():
            await stage.label("gpu-1", key, value)
        await stage.rest(120)
        stage.sandbox.apply({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tenant", "namespace": WORKLOAD_NAMESPACE},
            "spec": {"nodeName": "gpu-1", "containers": [container]},
        })
        await stage.rest(5)
        await stage.upgrade_to(NEW)
        if held:
            await stage.until(lambda: stage.driver("gpu-2") == NEW and stage.hold("gpu-1") == "HeldDevices")
            assert stage.driver("gpu-1") == OLD
        else:
            await stage.upgraded()
            assert stage.driver("gpu-1") == NEW
        assert [pod["metadata"]["name"] for pod in stage.workload_pods()] == ["tenant"], "it was left alone"

    on_stage(2)(play)()


@pytest.mark.parametrize("at", [State.POD_DELETION_REQUIRED, State.POD_RESTART_REQUIRED])
def test_who_puts_bare_pods_onto_a_node_after_its_cordon_fails_that_node_alone(at: State) -> None:
    async def play(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, failureBudget={"nodes": 0, "percent": 0}, retries=0)
        await stage.deploy("inf", 3)
        attacked: set[str] = set()

        def attack(event: Event) -> None:
            name, labels = event.obj["metadata"]["name"], event.obj["metadata"].get("labels") or {}
            if labels.get(names.UPGRADE_STATE) == at and name != "gpu-3" and name not in attacked:
                attacked.add(name)
                stage.run_pod(f"tenant-{name}", name)

        stage.sandbox.store.subscribe(attack, "nodes")
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.driver("gpu-3") == NEW and stage.state("gpu-3") == State.DONE, within=3600)
        assert attacked == {"gpu-1", "gpu-2"}
        for name in sorted(attacked):
            assert (stage.state(name), stage.driver(name), stage.cordoned(name)) == (State.FAILED, OLD, False)
            assert f"ml/tenant-{name}" in reason_of(await explanation_of(stage, name))
        assert {pod["metadata"]["name"] for pod in stage.workload_pods()} >= {"tenant-gpu-1", "tenant-gpu-2"}

    on_stage(3, upgrade={"maxParallelUpgrades": 1, "maxUnavailable": "100%"})(play)()
