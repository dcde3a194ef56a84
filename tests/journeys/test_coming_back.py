"""A workload that tolerates the cordon comes back at once: it is evicted ever more rarely, named, and failed at its deadline."""

from __future__ import annotations

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.kube.http.stats import RequestKey
from gpuward.model.explain import arguments
from gpuward.model.states import State
from gpuward.sandbox.fleet import WORKLOAD_NAMESPACE
from kubesandbox.builders import deployment
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import condition_of, explanation_of, status_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, gpu_template, on_stage

ALL = {"maxUnavailable": "100%", "maxParallelUpgrades": 0}
NEWER = "600.20.02"
EVICTED = RequestKey("create", "pods/eviction", 201)


async def run_stubborn(stage: Stage, replicas: int) -> None:
    """Run pods that tolerate the cordon of the one node where they may be."""
    template = gpu_template("stubborn")
    template["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"},
                         "tolerations": [{"key": names.CORDON_TAINT, "operator": "Exists"}]}
    stage.sandbox.apply(deployment("stubborn", WORKLOAD_NAMESPACE, replicas, template))
    await stage.until(lambda: len(stage.workload_pods("stubborn", "gpu-1")) == replicas)
    await stage.rest(30)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_workload_that_tolerates_the_cordon_is_no_tight_loop(replicas: int) -> None:
    @on_stage(gpu_nodes=2, upgrade=ALL)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await run_stubborn(stage, replicas)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "ComesBack")
        told = arguments(stage.operator.plan.holds["gpu-1"].what)
        assert str(told["owner"]).startswith("ReplicaSet stubborn-")
        assert "tolerate the cordon" in str(told["why"])
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=700)
        assert stage.client.stats.requests[EVICTED] <= 16 * replicas
        assert any("put pods back" in text and "tolerate the cordon" in text for text in stage.events("gpu-1", "Warning"))
        assert stage.driver("gpu-1") == OLD
        assert stage.driver("gpu-2") == NEW

    play()


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_an_upgrade_that_begins_anew_on_a_node_out_of_service_waits_as_long_for_what_comes_back(stage: Stage) -> None:
    await stage.installed()
    await run_stubborn(stage, 1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.client.stats.requests[EVICTED] == 5)
    await stage.label("gpu-1", names.UPGRADE_STATE, State.FAILED)
    await stage.upgrade_to(NEWER)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_DELETION_REQUIRED)
    await stage.rest(13)
    assert stage.client.stats.requests[EVICTED] == 5
    assert stage.hold("gpu-1") == "ComesBack"
    await stage.rest(30)
    assert stage.client.stats.requests[EVICTED] == 6


def test_evictions_whose_answers_are_lost_are_no_tight_loop_either() -> None:
    asked = 0

    def lose(request: Request, proceed: Proceed) -> Answer | Stream:
        nonlocal asked
        answer = proceed()
        if request.path.endswith("/eviction"):
            asked += 1
            raise errors.Unreachable("connection reset")
        return answer

    @on_stage(gpu_nodes=2, upgrade=ALL, interfere=lose)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await run_stubborn(stage, 1)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "ComesBack")
        await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=700)
        assert asked <= 16

    play()


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_pods_that_are_back_before_their_evictions_are_answered_are_no_tight_loop(stage: Stage) -> None:
    await stage.installed()
    await run_stubborn(stage, 2)
    stage.transport.latency = 4.8
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "ComesBack", within=300)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=900)
    assert stage.client.stats.requests[EVICTED] <= 32


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_a_node_that_failed_for_what_comes_back_is_tried_again_once_nothing_does(stage: Stage) -> None:
    await stage.installed()
    await run_stubborn(stage, 1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=700)
    evicted = stage.client.stats.requests[EVICTED]
    await stage.rest(12 * 3600)
    assert stage.client.stats.requests[EVICTED] == evicted, "the cause is known, and still there"
    assert (stage.state("gpu-1"), stage.hold("gpu-1")) == (State.FAILED, "ComesBack")
    held = [text for text in stage.events("gpu-1", "Warning") if text.startswith("ComesBack: ReplicaSet stubborn-")]
    assert held[-1].partition(", ")[2].startswith("as they tolerate the cordon")
    assert condition_of(stage)[1] == "NodesFailed"
    assert "tried again once those pods are gone, or no longer tolerate the cordon" in condition_of(stage)[2]
    stage.sandbox.store.modify("deployments.apps", WORKLOAD_NAMESPACE, "stubborn",
                               lambda obj: obj["spec"]["template"]["spec"].update(tolerations=[]))
    await stage.upgraded()


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_a_node_that_failed_for_another_pod_is_tried_again_under_pods_that_tolerate_its_cordon(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") in (State.POD_DELETION_REQUIRED, State.POD_RESTART_REQUIRED))
    stage.run_pod("bare", "gpu-1")
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    await stage.user.delete(resources.PODS, "bare", WORKLOAD_NAMESPACE)
    await run_stubborn(stage, 1)
    assert stage.hold("gpu-1") == "RetryLater"
    await stage.until(lambda: stage.state("gpu-1") not in (State.FAILED, State.UPGRADE_REQUIRED), within=3600)


@on_stage(gpu_nodes=1, upgrade=ALL)
async def test_pods_that_were_back_between_two_upgrades_have_not_come_back(stage: Stage) -> None:
    """The node was in service then: that its pods are there again is no reason to wait, nor to name their owner."""
    await stage.installed()
    template = gpu_template("train")
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "gpu-1"}
    stage.sandbox.apply(deployment("train", WORKLOAD_NAMESPACE, 1, template))
    for version in (NEW, OLD, NEW):
        await stage.until(lambda: any(user.startswith(WORKLOAD_NAMESPACE)
                                      for user in stage.sandbox.machine("gpu-1").users.values()))
        await stage.upgrade_to(version)
        await stage.upgraded(version)
        await stage.until(lambda: len(stage.workload_pods("train", "gpu-1")) == 1)
    assert stage.client.stats.requests[EVICTED] == 3
    assert not [text for text in stage.events("gpu-1") if "ComesBack" in text]


@on_stage(gpu_nodes=2, upgrade=ALL)
async def test_people_are_told_of_what_comes_back_as_the_events_do_and_what_helps_helps(stage: Stage) -> None:
    await stage.installed()
    await run_stubborn(stage, 1)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.client.stats.requests[EVICTED] == 5)
    await stage.rest(10)
    assert stage.hold("gpu-1") == "ComesBack"
    told = {node["name"]: node for node in (await status_of(stage))["nodes"]}["gpu-1"]
    assert told["reason"] == "ComesBack"
    assert "puts pods back on the cordoned node" in told["message"]
    found = await explanation_of(stage, "gpu-1")
    assert [pod.why.partition(":")[0] for pod in found.pods] == ["it tolerates the cordon"]
    assert not [note for note in found.notes if "nothing has to be done" in note]
    toleration, scaled = found.remedies
    assert toleration.do.startswith(f"take the toleration of {names.CORDON_TAINT} out of Deployment ml/stubborn: ")
    assert toleration.commands == (f"kubectl edit deployment stubborn -n {WORKLOAD_NAMESPACE}",)
    assert scaled.commands == (f"kubectl scale deployment stubborn -n {WORKLOAD_NAMESPACE} --replicas=0",)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED, within=700)
    after = (await explanation_of(stage, "gpu-1")).remedies
    assert after[0].do.partition(" out of ")[0] == f"take the toleration of {names.CORDON_TAINT}"
    assert after[1].commands[0].startswith(f"{scaled.commands[0]} && gpuward retry gpu-1")
    stage.sandbox.store.modify("deployments.apps", WORKLOAD_NAMESPACE, "stubborn", lambda obj: obj["spec"].update(replicas=0))
    await stage.label("gpu-1", names.UPGRADE_STATE, State.UPGRADE_REQUIRED)
    await stage.upgraded()
