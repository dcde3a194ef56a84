"""A disruption budget that Kubernetes cannot work out, as its pods' controller has no scale: people are told what mends it."""

from __future__ import annotations

from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.sim.objects import Object
from tests.journeys.looking import explanation_of
from tests.journeys.stage import NEW, Stage, gpu_template, on_stage

BUDGETS = "poddisruptionbudgets.policy"


def _job(name: str, node: str) -> Object:
    template = gpu_template(name)
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "controller": True, "uid": "u-1"}
    meta = {"name": name, "namespace": WORKLOAD_NAMESPACE, "labels": {"app": name}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template["spec"], "nodeName": node}}


@on_stage(gpu_nodes=2)
async def test_one_that_cannot_be_worked_out_blocks_and_is_mended_by_a_number(stage: Stage) -> None:
    await stage.installed()
    stage.sandbox.apply(_job("train", "gpu-1"))
    stage.sandbox.apply({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "train", "namespace": WORKLOAD_NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "train"}}, "maxUnavailable": 1}})
    await stage.rest(60)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks" and stage.state("gpu-2") == State.DONE, within=1800)
    told = sentence(stage.operator.plan.holds["gpu-1"])
    assert "lets no pod go" in told
    assert "Kubernetes cannot work it out" in told
    first = (await explanation_of(stage, "gpu-1")).remedies[0]
    assert "write minAvailable as a number" in first.do

    def number(found: Object) -> None:
        found["spec"].pop("maxUnavailable")
        found["spec"]["minAvailable"] = 0

    stage.sandbox.store.modify(BUDGETS, WORKLOAD_NAMESPACE, "train", number)
    await stage.until(lambda: stage.state("gpu-1") == State.DONE and stage.driver("gpu-1") == NEW, within=1800)
