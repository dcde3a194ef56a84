"""Evictions that the operator has no right to: one node finds that out, and no other is cordoned for it."""

from __future__ import annotations

import re

import pytest

from gpuward import errors, names
from gpuward.cli.resume import resume_rollout
from gpuward.cli.waiting import stopped
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from kubesandbox.messages import Request
from tests.journeys.looking import explanation_of, headline_of, looking
from tests.journeys.stage import NEW, Stage, on_stage
from tests.journeys.test_driver_pod_refused import ONE, Refuser
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_nvidiadriver import nvidia_driver, set_driver, with_pools
from tests.journeys.test_rolloutpolicy import apply

NO_RIGHT = ('pods "train" is forbidden: User "system:serviceaccount:gpu-operator:gpuward" cannot create resource "pods/eviction" '
            'in API group "" in the namespace "default"')
DENIED = ['admission webhook "keep.example.com" denied the request: User "gpuward" cannot create resource "pods/eviction"',
          'pods "train" is forbidden: ValidatingAdmissionPolicy \'keep\' with binding \'keep\' denied request: not now']


def evictions(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/eviction")


def begun(stage: Stage) -> set[str]:
    return {node for node in stage.states() if IN_PROGRESS & set(stage.entered(node))}


@on_stage(gpu_nodes=4, upgrade=ONE)
async def test_a_right_that_is_missing_for_all_costs_one_node(stage: Stage) -> None:
    await stage.installed()
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        await stage.deploy(f"train-{node}", node=node)
    refuser = stage.transport.interfere = Refuser(evictions, errors.Forbidden(NO_RIGHT))
    await stage.upgrade_to()
    await stage.until(lambda: "EvictionForbidden" in map(stage.hold, stage.states()), within=600)
    await stage.until(lambda: stage.driver("gpu-4") == NEW, within=3600)
    first = next(node for node in stage.states() if stage.hold(node) != "EvictionForbidden" and node != "gpu-4")
    held = [node for node in stage.states() if node not in (first, "gpu-4")]
    assert {stage.hold(node) for node in held} == {"EvictionForbidden"}
    told = sentence(stage.operator.plan.holds[held[0]])
    assert NO_RIGHT in told
    assert f"node {first} found" in told
    await stage.until(lambda: State.FAILED in stage.entered(first), within=3600)
    await stage.rest(30)
    assert not stage.cordons()
    status, reason, message = rollout(stage)
    assert (status, reason) == ("False", "EvictionForbidden")
    assert NO_RIGHT in message
    assert await headline_of(stage) == (
        "ClusterPolicy cluster-policy: 1 of 4 nodes up to date, 1 failed; the rollout has stopped: the operator has no right to "
        "evict pods of namespace ml")
    async with looking(stage) as picture:
        assert {str(picture.plan.holds[node].reason) for node in held} == {"EvictionForbidden"}
        assert stopped(picture) == ""  # it is tried again
    for node in (first, held[0]):
        (remedy, *_) = (await explanation_of(stage, node)).remedies
        assert remedy.do.startswith("give the operator's service account the right to create pods/eviction")
        assert "gpuward check" in remedy.commands
    assert [pod.why for pod in (await explanation_of(stage, held[0])).pods] == [
        "the operator has no right to evict pods of namespace ml"]
    assert not any("maxParallelUpgrades" in remedy.do for remedy in (await explanation_of(stage, held[0])).remedies)
    await stage.rest(1800)
    assert begun(stage) == {first, "gpu-4"}, "nobody else is taken out of service for it"
    refuser.there = False
    await stage.until(lambda: {stage.driver(node) for node in held} == {NEW} and not stage.cordons(), within=2 * 3600)


@on_stage(gpu_nodes=6)
async def test_what_a_node_of_one_nvidiadriver_finds_out_holds_those_of_others_until_theirs_is_resumed(stage: Stage) -> None:
    await with_pools(stage, nvidia_driver("a"), nvidia_driver("b"))
    for node in stage.states():
        await stage.deploy(f"train-{node}", node=node)
    stage.transport.interfere = Refuser(evictions, errors.Forbidden(NO_RIGHT))
    stage.watch_limits()
    await set_driver(stage, "a", {"version": NEW})
    await stage.until(lambda: "EvictionForbidden" in map(stage.hold, stage.states()), within=600)
    await set_driver(stage, "b", {"version": NEW})
    await stage.rest(120)
    assert len(begun(stage)) == len(stage.cordons()) == 1
    assert {stage.hold(node) for node in ("gpu-4", "gpu-5", "gpu-6")} == {"EvictionForbidden"}
    await stage.until(lambda: not stage.cordons(), within=600)
    await resume_rollout(stage.user, stage.clock.now(), "b")
    await stage.until(lambda: bool(begun(stage) & {"gpu-4", "gpu-5", "gpu-6"}), within=60)


@pytest.mark.parametrize("message", DENIED)
def test_a_webhook_that_protects_one_pod_holds_nobody_else(message: str) -> None:
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("train", node="gpu-1")
        await stage.deploy("other", node="gpu-2")
        stage.transport.interfere = Refuser(
            lambda asked: evictions(asked) and re.search("/train-[^/]*/eviction$|/train/eviction$", asked.path) is not None,
            errors.Forbidden(message))
        await stage.upgrade_to()
        await stage.until(lambda: stage.driver("gpu-2") == NEW, within=3600)
        assert stage.driver("gpu-1") != NEW

    story()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_person_lets_others_be_tried_before_their_evictions_are_known_to_be_allowed(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("train-first", node="gpu-1")
    await stage.deploy("other", node="gpu-2")
    await stage.deploy("other-too", node="gpu-2")
    stage.transport.interfere = Refuser(lambda asked: evictions(asked) and "/train-first" in asked.path,
                                        errors.Forbidden(NO_RIGHT))
    await stage.upgrade_to()
    await stage.until(lambda: State.FAILED in stage.entered("gpu-1"), within=3600)
    await stage.rest(30)
    assert stage.hold("gpu-2") == "EvictionForbidden"
    await resume_rollout(stage.user, stage.clock.now())
    await stage.until(lambda: stage.driver("gpu-2") == NEW, within=3600)


@on_stage(gpu_nodes=4, upgrade=ONE)
async def test_what_other_nodes_wait_for_does_not_hide_it(stage: Stage) -> None:
    await stage.installed()
    for node in ("gpu-2", "gpu-3", "gpu-4"):
        await stage.deploy(f"train-{node}", node=node)
    stage.transport.interfere = Refuser(evictions, errors.Forbidden(NO_RIGHT))
    await stage.label("gpu-1", names.UPGRADE_SKIP, "true")
    await stage.upgrade_to()
    await stage.until(lambda: "EvictionForbidden" in map(stage.hold, stage.states()), within=600)
    await apply(stage, windows=[{"schedule": "0 3 1 12 *", "duration": "1h"}])
    await stage.label("gpu-1", names.UPGRADE_SKIP, None)
    await stage.until(lambda: stage.hold("gpu-1") == "WindowShut")
    await stage.rest(60)
    held = next(node for node in stage.states() if stage.hold(node) == "EvictionForbidden")
    assert rollout(stage)[1] == "EvictionForbidden"
    assert NO_RIGHT in rollout(stage)[2]
    assert "the rollout has stopped: the operator has no right to evict pods" in await headline_of(stage)
    async with looking(stage) as picture:
        assert str(picture.plan.holds[held].reason) == "EvictionForbidden"
