"""Nodes without a driver pod that were emptied, and to which a GPU pod comes before the label that brings the next driver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuward import names
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from gpuward.sandbox.programs import OPENS_GPUS
from kubesandbox.builders import deployment
from kubesandbox.sim.objects import is_ready
from tests.journeys.stage import NEW, Stage, gpu_template, on_stage
from tests.journeys.test_nvidiadriver import driver_pods
from tests.journeys.test_withheld import set_driver, torn, with_notebooks
from tests.journeys.test_withheld_unrecorded import VERSIONS, switched_on


def gpu_pod(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    """Return a pod that names its node, tolerates everything and has no GPU open."""
    spec = gpu_template(name)["spec"] | {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": name, "namespace": WORKLOAD_NAMESPACE, "labels": {"app": name}, "annotations": {OPENS_GPUS: "false"}, **metadata}}


async def switched_off(stage: Stage, *nodes: str) -> None:
    for node in nodes:
        await stage.deploy(f"train-{node}", node=node)
    await stage.switch_off_at_once()
    await stage.until(lambda: not driver_pods(stage))
    await stage.rest(30)


@pytest.mark.parametrize("how", sorted(VERSIONS))
def test_a_pod_that_is_about_to_start_keeps_the_driver_away_from_its_node(how: str) -> None:
    """It is bound to the node and Pending, while the node has yet to get its label."""
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await with_notebooks(stage)
        await switched_off(stage, *stage.states())
        seen: list[str] = []

        def intrude(event: Any) -> None:
            labels, node = event.obj["metadata"]["labels"], event.obj["metadata"]["name"]
            if not seen and labels.get(names.UPGRADE_STATE) == State.POD_RESTART_REQUIRED:
                assert names.DEPLOY_DRIVER not in labels
                seen.append(node)
                stage.sandbox.apply(gpu_pod("intruder", node))

        stage.sandbox.store.subscribe(intrude, "nodes")
        await switched_on(stage, how)
        await stage.until(lambda: seen)
        await stage.rest(900)
        assert torn(stage) == []

    story()


@on_stage(gpu_nodes=2)
async def test_a_pod_that_is_made_again_at_once_is_emptied_again(stage: Stage) -> None:
    """As that of a StatefulSet which tolerates everything: the next one is Pending a moment after the last one has gone."""
    await stage.installed()
    stage.sandbox.apply(deployment("set", WORKLOAD_NAMESPACE, 0, gpu_template("set")))  # an owner that is there
    uid = stage.get("deployments.apps", "set", WORKLOAD_NAMESPACE)["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "set", "uid": uid, "controller": True}
    stage.sandbox.apply(gpu_pod("set-0", "gpu-1", ownerReferences=[owner]))
    await stage.until(lambda: sum(map(is_ready, stage.workload_pods())) == 1)

    def again(event: Any) -> None:
        if event.type == "DELETED" and event.obj["metadata"]["name"] == "set-0":
            body = gpu_pod("set-0", "gpu-1", ownerReferences=[owner])
            asyncio.get_running_loop().call_later(0.03, lambda: stage.sandbox.apply(body))

    stage.sandbox.store.subscribe(again, "pods")
    await switched_off(stage, "gpu-1")
    await set_driver(stage, {"enabled": True, "version": NEW})
    await stage.rest(1800)
    assert torn(stage) == []
    assert stage.driver("gpu-2") == NEW
