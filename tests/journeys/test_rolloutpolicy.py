"""gpuward's own settings of a rollout: written, edited, broken, doubled, absent; and a rollout that is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuward.cli.resume import resume_rollout
from gpuward.crd.generate import CUSTOM_RESOURCES, crd
from gpuward.errors import Forbidden
from gpuward.kube import resources
from gpuward.model.explain import sentence
from gpuward.model.states import State
from gpuward.sandbox.faults import FaultKind
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.sim.faults import Fault
from kubesandbox.sim.kubelet import TERMINATION_SECONDS
from tests.journeys.looking import explanation_of, headline_of, obey
from tests.journeys.stage import NEW, OLD, Proceed, Stage, gpu_template, on_stage

ONE = {"maxUnavailable": "100%", "maxParallelUpgrades": 1}
EXAMPLE = Path(__file__).parents[2] / "examples" / "rolloutpolicy.yaml"
KEY = "rolloutpolicies.gpuward.io"
DEFINITION = next(crd(resource) for resource in CUSTOM_RESOURCES if resource.crd_name == KEY)


async def apply(stage: Stage, name: str = "default", **spec: Any) -> None:
    """Create a RolloutPolicy."""
    body = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": spec}
    await stage.user.create(resources.ROLLOUT_POLICIES, body)


async def edit(stage: Stage, name: str = "default", **spec: Any) -> None:
    """Change fields of a RolloutPolicy; None removes one."""
    await stage.user.patch_merge(resources.ROLLOUT_POLICIES, name, {"spec": spec})


def status(stage: Stage, name: str = "default") -> dict[str, Any]:
    """Return a RolloutPolicy's status."""
    return dict(stage.get(KEY, name, "").get("status") or {})


def break_drivers(stage: Stage, node: str = "*") -> Fault:
    """Let the new driver crash."""
    fault = Fault(FaultKind.DRIVER_CRASH, node=node, image=f"*{NEW}*")
    stage.sandbox.faults.add(fault)
    return fault


def failed(stage: Stage) -> list[str]:
    """Return the nodes whose upgrade has failed."""
    return sorted(node for node, state in stage.states().items() if state == State.FAILED)


@on_stage(gpu_nodes=4, upgrade=ONE)
async def test_a_rollout_pauses_at_its_failure_budget_and_goes_on_when_it_is_resumed(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, failureBudget={"nodes": 0, "percent": 0}, retries=0)
    await stage.until(lambda: status(stage).get("state") == "active")
    fault = break_drivers(stage)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: len(failed(stage)) == 1, within=7200)
    await stage.rest(3600)
    (broken,) = failed(stage)
    assert {stage.hold(node) for node in stage.states() if node != broken} == {"FailureBudget"}
    stage.sandbox.faults.clear(fault)
    done = await resume_rollout(stage.user, stage.clock.now())
    assert done.nodes == (broken,)
    await stage.until(lambda: len(stage.drivers()) == 1, within=3600)
    assert stage.drivers() == [NEW]


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_more_room_in_the_budget_lets_a_paused_rollout_go_on_too(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, failureBudget={"nodes": 0, "percent": 0}, retries=0)
    break_drivers(stage, "gpu-2")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-3") == "FailureBudget", within=7200)
    await edit(stage, failureBudget={"nodes": 1})
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-1", "gpu-3")] == [NEW, NEW], within=3600)


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_what_explain_offers_changes_the_policy_in_force_whatever_its_name(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, "fleet", failureBudget={"nodes": 0, "percent": 0}, retries=0)
    break_drivers(stage, "gpu-2")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-3") == "FailureBudget", within=7200)
    remedies = (await explanation_of(stage, "gpu-3")).remedies
    (command,) = next(remedy.commands for remedy in remedies if remedy.do == "raise failureBudget.nodes to 1")
    await obey(stage, command)
    await stage.until(lambda: [stage.driver(node) for node in ("gpu-1", "gpu-3")] == [NEW, NEW], within=3600)
    assert stage.get(KEY, "fleet", "")["spec"]["retries"] == 0, "what else people wrote is still there"


@on_stage(gpu_nodes=1, upgrade={**ONE, "podDeletion": {"timeoutSeconds": 30}})
async def test_what_explain_offers_makes_a_policy_where_there_is_none(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "BudgetBlocks")
    remedies = (await explanation_of(stage, "gpu-1")).remedies
    (command,) = next(remedy.commands for remedy in remedies if "killAtDeadline" in remedy.do)
    await obey(stage, command)
    await stage.upgraded()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_deadline_of_the_policy_is_kept(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, deadlines={"validation-required": "2m"}, retries=0)
    stage.sandbox.faults.add(Fault(FaultKind.VALIDATOR_NEVER_READY, node="gpu-1", pod="nvidia-operator-validator*"))
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    begun = stage.clock.now()
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    assert 115 < stage.clock.now() - begun < 125


def keeps_workloads(request: Request, proceed: Proceed) -> Answer | Stream:
    """Let pods of users be deleted by nobody, as where that right was taken from the operator's role."""
    if request.method == "DELETE" and f"/namespaces/{WORKLOAD_NAMESPACE}/pods/" in request.path:
        return refusal(Forbidden("pods is forbidden"))
    return proceed()


@on_stage(gpu_nodes=1, upgrade={**ONE, "podDeletion": {"timeoutSeconds": 30}}, interfere=keeps_workloads)
async def test_a_pod_that_may_not_be_killed_is_named_on_its_node_with_the_refusal(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, killAtDeadline=True, retries=0)
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "Killing")
    await stage.rest(1)
    assert "its deletion is refused: pods is forbidden" in sentence(stage.operator.plan.holds["gpu-1"])
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    assert "(pods is forbidden)" in sentence(stage.operator.plan.holds["gpu-1"])


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_second_policy_is_ignored_until_the_first_is_gone(stage: Stage) -> None:
    await apply(stage, "first", retries=1)
    await stage.until(lambda: status(stage, "first").get("state") == "active")
    await stage.rest(1)
    await apply(stage, "second", retries=2)
    await stage.until(lambda: status(stage, "second").get("state") == "ignored")
    assert "RolloutPolicy first" in status(stage, "second")["conditions"][0]["message"]
    assert retries(stage) == 1
    await stage.user.delete(resources.ROLLOUT_POLICIES, "first")
    await stage.until(lambda: status(stage, "second").get("state") == "active")
    assert retries(stage) == 2


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_one_that_cannot_be_followed_starts_nothing_says_what_to_write_and_keeps_the_settings_before(stage: Stage) -> None:
    stage.sandbox.apply(_loosened())
    await stage.installed()
    await apply(stage, retries=5)
    await stage.until(lambda: retries(stage) == 5)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    await edit(stage, deadlines={"sleeping": "1m"}, retryBackoff="soon")
    await stage.until(lambda: status(stage).get("state") == "invalid")
    message = status(stage)["conditions"][0]["message"]
    assert "spec.retryBackoff: 'soon'" in message
    assert "'sleeping'" in message
    await stage.until(lambda: stage.driver("gpu-1") == NEW and stage.state("gpu-1") == State.DONE)
    await stage.restart_operator()
    await stage.rest(300)
    assert (stage.driver("gpu-2"), stage.hold("gpu-2")) == (OLD, "InvalidPolicy")
    assert retries(stage) == 5, "also after a restart"
    assert len([line for line in stage.warnings("cannot be followed") if "'soon'" in line["problem"]]) == 2, "once per start"
    await edit(stage, deadlines=None, retryBackoff=None)
    await stage.upgraded()
    assert status(stage)["state"] == "active"


@on_stage(gpu_nodes=1, upgrade=ONE)
async def test_an_empty_policy_is_filled_in_with_what_the_example_says(stage: Stage) -> None:
    spec = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["spec"]
    await apply(stage)
    assert stage.get(KEY, "default", "")["spec"] == {key: value for key, value in spec.items() if key != "deadlines"}


@on_stage(gpu_nodes=1, upgrade=ONE)
async def test_without_the_crd_the_defaults_hold_and_it_may_come_later(stage: Stage) -> None:
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, KEY)
    await stage.restart_operator()
    await stage.installed()
    await stage.rest(600)
    assert stage.warnings(resource=KEY) == []
    stage.sandbox.apply(DEFINITION)
    await apply(stage, retries=9)
    await stage.until(lambda: status(stage).get("state") == "active", within=60)
    assert retries(stage) == 9
    await stage.user.delete(resources.CUSTOM_RESOURCE_DEFINITIONS, KEY)
    await stage.until(lambda: retries(stage) == 3)


def retries(stage: Stage) -> int:
    """Return a setting that is in force."""
    return stage.operator.policies.read(stage.operator.cluster.observe()).policy.upgrades.rollout.retries


def _loosened() -> dict[str, Any]:
    """Return the CRD as an older or a later version might have it: it accepts what this operator cannot follow."""
    body = next(crd(resource) for resource in CUSTOM_RESOURCES if resource.crd_name == KEY)
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return body


@pytest.mark.parametrize("guarded", [False, True], ids=["evicted", "refused"])
def test_a_pod_that_asks_for_days_to_end_holds_its_node_no_longer_than_its_deadline_and_a_bounded_grace(guarded: bool) -> None:
    async def play(stage: Stage) -> None:
        await stage.installed()
        await apply(stage, killAtDeadline=True, retries=0)
        template = gpu_template("slow")
        template["metadata"]["annotations"] = {TERMINATION_SECONDS: "1e9"}
        template["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "terminationGracePeriodSeconds": 5 * 86400}
        stage.sandbox.apply(deployment("slow", WORKLOAD_NAMESPACE, 1, template))
        await stage.until(lambda: any(stage.workload_pods("slow", "gpu-1")))
        if guarded:
            stage.set_budget("slow", 0)
        await stage.rest(30)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
        begun = stage.clock.now()
        await stage.until(lambda: stage.driver("gpu-1") == NEW, within=3600)
        assert stage.clock.now() - begun < 30 + 300 + 120
        await stage.upgraded()

    on_stage(1, upgrade={**ONE, "podDeletion": {"timeoutSeconds": 30}})(play)()


@on_stage(gpu_nodes=2)
async def test_explain_says_what_is_wrong_with_a_rolloutpolicy_that_holds_a_node(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": "0 25 * * FRI", "duration": "8h"}])
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "InvalidPolicy")
    (remedy,) = (await explanation_of(stage, "gpu-1")).remedies
    assert remedy.do.startswith("correct the RolloutPolicy: RolloutPolicy default cannot be followed: spec.windows")
    assert "0 25 * * FRI" in remedy.do
    assert remedy.commands == ("kubectl edit rolloutpolicy default",)


@on_stage(gpu_nodes=2)
async def test_the_first_of_several_problems_says_how_many_more_there_are(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": each, "duration": "8h"} for each in ("0 25 * * FRI", "0 26 * * FRI")])
    await stage.rest(30)
    first = await headline_of(stage)
    assert first.startswith("RolloutPolicy default cannot be followed: spec.")
    assert " (and 1 more problem: `gpuward check` names all); apart from that ClusterPolicy cluster-policy: 2 of 2" in first


@on_stage(gpu_nodes=2)
async def test_the_first_line_counts_what_else_is_wrong_beside_the_clusterpolicy(stage: Stage) -> None:
    await stage.installed()
    await apply(stage, windows=[{"schedule": "0 25 * * FRI", "duration": "8h"}])
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", "abc")
    await stage.rest(30)
    first = await headline_of(stage)
    assert first.startswith("ClusterPolicy cluster-policy cannot be followed: spec.driver.upgradePolicy.maxUnavailable")
    assert first.endswith(" (and 1 more problem: `gpuward check` names all)")
