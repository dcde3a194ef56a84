"""Driver pods that may not be deleted, by a right that is lacking or a webhook: their nodes serve on, and say who refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gpuward import errors, names
from gpuward.cli.resume import resume_rollout
from gpuward.cli.waiting import stopped
from gpuward.model.explain import sentence
from gpuward.model.states import IN_PROGRESS, State
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import explanation_of, headline_of, looking
from tests.journeys.stage import NEW, Proceed, Stage, on_stage
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_nvidiadriver import driver_pods, label_pools, make, nvidia_driver

ONE = {"maxParallelUpgrades": 1, "maxUnavailable": "100%"}
SPACE = names.DEFAULT_NAMESPACE
NO_DELETE = 'pods is forbidden: User "system:serviceaccount:gpu-operator:gpuward" cannot delete resource "pods"'
DENIED = 'admission webhook "keep.example.com" denied the request: driver pods stay'
NO_LIST = 'pods is forbidden: User "system:serviceaccount:gpu-operator:gpuward" cannot list resource "pods" at the cluster scope'


class Refuser:
    """Refuse what replaces drivers, as long as it is there."""

    def __init__(self, matches: Callable[[Request], bool], error: errors.ApiError) -> None:
        self.matches, self.error, self.there = matches, error, True
        self.asked = 0

    def __call__(self, request: Request, proceed: Proceed) -> Answer | Stream:
        if not self.there or not self.matches(request):
            return proceed()
        self.asked += 1
        return messages.answer(messages.status_object(self.error), self.error.status)


def deletions(request: Request) -> bool:
    return request.method == "DELETE" and f"/namespaces/{SPACE}/pods/nvidia-driver" in request.path


def looks(request: Request) -> bool:
    return request.method == "GET" and "spec.nodeName" in request.query.get("fieldSelector", "")


def moves(request: Request) -> bool:
    """Tell whether it changes a node's placement."""
    owner = b'"add","path":"/metadata/labels/nvidia.com~1gpu-operator.driver.owner'
    return request.method == "PATCH" and "/nodes/gpu-" in request.path and owner in request.body


def refusers() -> list[Refuser]:
    return [Refuser(deletions, errors.Forbidden(NO_DELETE)), Refuser(deletions, errors.Invalid(DENIED, details={})),
            Refuser(looks, errors.Forbidden(NO_LIST))]


async def judge(stage: Stage, refuser: Refuser, act: Callable[[], Awaitable[None]]) -> None:
    """Play an upgrade that nobody lets happen, to the end of all tries, and then one that is allowed."""
    await stage.deploy("train", stage.gpu_nodes)
    stage.transport.interfere = refuser
    before = {node: driver_pods(stage, node)[0]["metadata"]["uid"] for node in stage.states()}
    message = str(refuser.error)
    await act()
    await stage.until(lambda: refuser.asked > 2)
    await stage.rest(60)
    (first,) = [node for node in stage.states() if stage.state(node) == State.POD_RESTART_REQUIRED]
    assert stage.hold(first) == "ReplacementRefused"
    assert message in sentence(stage.operator.plan.holds[first])
    assert any(message in event for event in stage.events(first, "Warning"))
    others = [node for node in stage.states() if node != first]
    assert {stage.hold(node) for node in others} == {"RefusedElsewhere"}
    assert all(message in sentence(stage.operator.plan.holds[node]) for node in others)
    await judge_outlets(stage, first, others)
    await stage.until(lambda: State.FAILED in stage.entered(first), within=3000)
    await stage.rest(30)
    assert any(message in event for event in stage.events(first))
    assert not stage.cordons(), "its driver is untouched"
    assert "NewDriverFails" not in {stage.hold(node) for node in stage.states()} | {rollout(stage)[1]}
    await stage.until(lambda: len([s for s in stage.entered(first) if s is State.FAILED]) == 2, within=3600)
    await stage.rest(30)
    assert not stage.cordons(), "not after the second try either"
    assert not any(IN_PROGRESS & set(stage.entered(node)) for node in others), "nobody is emptied for nothing"
    assert {node: driver_pods(stage, node)[0]["metadata"]["uid"] for node in stage.states()} == before
    refuser.there = False
    await stage.until(lambda: stage.finished(), within=4 * 3600)
    assert not stage.cordons()


async def judge_outlets(stage: Stage, first: str, others: list[str]) -> None:
    """Look whether who reads the cluster from outside says what the operator says."""
    assert f" rollout has stopped: the driver pod of {first} may not be replaced" in await headline_of(stage)
    async with looking(stage) as picture:
        assert {str(picture.plan.holds[node].reason) for node in others} == {"RefusedElsewhere"}
        assert "attempt" not in sentence(picture.plan.holds[first])
        assert stopped(picture).startswith("ReplacementRefused: ")
    pod = driver_pods(stage, first)[0]["metadata"]["name"]
    (help_,) = (await explanation_of(stage, first)).remedies
    assert help_.do.startswith(f"let driver pod {pod} be replaced: ")
    assert help_.then.startswith("this node goes on")
    assert help_.commands[0] == "gpuward check"
    remedies = [remedy.do for remedy in (await explanation_of(stage, others[0])).remedies]
    assert remedies[0].startswith(f"let driver pod {pod} of node {first} be replaced: ")
    assert not any("maxParallelUpgrades" in each for each in remedies), remedies


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_deletion_whose_connection_broke_was_refused_by_nobody(stage: Stage) -> None:
    broken: list[Request] = []

    def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
        if not deletions(request) or len(broken) == 4:
            return proceed()
        broken.append(request)
        raise errors.Unreachable("connection reset by peer")

    await stage.installed()
    stage.transport.interfere = interfere
    await stage.upgrade_to()
    while not stage.finished():
        await stage.rest(0.2)
        assert {stage.hold(node) for node in stage.states()}.isdisjoint({"ReplacementRefused", "RefusedElsewhere"})
    assert len(broken) == 4
    assert [event for node in stage.states() for event in stage.events(node, "Warning")] == []


@pytest.mark.parametrize("refuser", refusers(), ids=["right", "webhook", "look"])
def test_a_driver_pod_that_may_not_be_deleted_costs_one_node_and_names_who_refuses(refuser: Refuser) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()
        await judge(stage, refuser, stage.upgrade_to)

    story()


@pytest.mark.parametrize("refuser", [Refuser(moves, errors.Forbidden(DENIED)), Refuser(looks, errors.Forbidden(NO_LIST))],
                         ids=["webhook", "look"])
def test_a_node_that_may_not_be_given_to_another_daemonset_serves_on(refuser: Refuser) -> None:
    @on_stage(gpu_nodes=2)
    async def story(stage: Stage) -> None:
        await label_pools(stage, a="gpu-1 gpu-2")
        await stage.patch_policy("driver/useNvidiaDriverCRD", True)
        await make(stage, nvidia_driver("a", ONE), nvidia_driver("b", ONE, version=NEW))
        await stage.installed()

        async def move() -> None:
            stage.watch_limits()
            for node in ("gpu-1", "gpu-2"):
                await stage.label(node, "pool", "b")

        await judge(stage, refuser, move)

    story()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_person_lets_the_other_nodes_go_on_beside_one_driver_pod_that_may_not_be_deleted(stage: Stage) -> None:
    await stage.installed()
    kept = stage.driver_pod("gpu-1")["metadata"]["name"]
    stage.transport.interfere = Refuser(lambda asked: deletions(asked) and asked.path.endswith(kept), errors.Forbidden(DENIED))
    await stage.upgrade_to()
    await stage.until(lambda: State.FAILED in stage.entered("gpu-1"), within=3000)
    assert {stage.hold(node) for node in ("gpu-2", "gpu-3")} == {"RefusedElsewhere"}
    await stage.rest(90)
    async with looking(stage) as picture:
        assert stopped(picture).startswith("ReplacementRefused: "), "`status --wait` ends with 4"
    await resume_rollout(stage.user, stage.clock.now())
    await stage.until(lambda: stage.driver("gpu-2") == stage.driver("gpu-3") == NEW, within=3600)
    assert stage.driver("gpu-1") != NEW
