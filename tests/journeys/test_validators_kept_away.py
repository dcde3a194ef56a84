"""No validator pod can be made for a new driver: whoever asks learns what keeps it away, and what would help."""

from __future__ import annotations

from gpuward import names
from gpuward.kube import resources
from gpuward.model.states import State
from kubesandbox.sim.objects import Object
from tests.journeys.looking import explanation_of, headline_of, obey, screen_of
from tests.journeys.stage import NEW, Stage, on_stage


@on_stage(gpu_nodes=2)
async def test_a_taint_that_keeps_them_away_is_named_with_the_way_out(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: State.VALIDATION_REQUIRED in stage.states().values(), within=900)
    node = next(name for name, state in stage.states().items() if state == State.VALIDATION_REQUIRED)

    def taint(found: Object) -> None:
        found["spec"]["taints"] = [{"key": "maintenance", "effect": "NoSchedule"}]

    stage.sandbox.store.modify("nodes", None, node, taint)
    for pod in stage.pods(names.VALIDATOR_APP, node):
        stage.sandbox.store.delete("pods", names.DEFAULT_NAMESPACE, pod["metadata"]["name"])
    await stage.until(lambda: stage.hold(node) == "ValidatorMissing")
    await stage.rest(150)
    assert " in trouble" not in await headline_of(stage)
    await stage.rest(170)
    assert await headline_of(stage) == "ClusterPolicy cluster-policy: 0 of 2 nodes up to date, 1 under way in trouble"
    assert any("1 waiting for nodes under way, of which 1 needs somebody" in line for line in await screen_of(stage))
    assert "ValidatorMissing: waits for a validator pod on this node" in stage.events(node)
    (remedy,) = (await explanation_of(stage, node)).remedies
    assert "take taint maintenance:NoSchedule from the node" in remedy.do
    assert "nvidia-operator-validator does not tolerate it" in remedy.do
    assert remedy.commands == (f"kubectl taint node {node} maintenance:NoSchedule-",)

    def clean(found: Object) -> None:
        found["spec"].pop("taints")

    stage.sandbox.store.modify("nodes", None, node, clean)
    await stage.until(lambda: stage.state(node) == State.DONE and stage.driver(node) == NEW)


@on_stage(gpu_nodes=2)
async def test_a_label_that_keeps_them_from_a_node_at_rest_is_named_with_the_way_out(stage: Stage) -> None:
    await stage.installed()
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"labels": {names.DEPLOY_VALIDATOR: "false"}}})
    await stage.until(lambda: stage.hold("gpu-1") == "ValidatorMissing")
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert remedy.commands == (f"kubectl label node gpu-1 {names.DEPLOY_VALIDATOR}-",)
    assert "this node is up to date then" in remedy.then
    await obey(stage, remedy.commands[0])
    await stage.until(lambda: not stage.hold("gpu-1"))
    assert len(stage.pods(names.VALIDATOR_APP, "gpu-1")) == 1
