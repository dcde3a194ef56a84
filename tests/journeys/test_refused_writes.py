"""An admission webhook, or a right that is lacking, keeps one node from being changed: the others go on, and it says why."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from gpuward import errors, names
from gpuward.kube import resources
from gpuward.model.explain import arguments, sentence
from gpuward.model.states import State
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.looking import explanation_of, headline_of, reason_of
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage
from tests.journeys.test_driver_truth import rollout
from tests.journeys.test_two_leaders import first_leads, operator, take_lease
from tests.journeys.test_withheld import with_notebooks

ONE = {"maxUnavailable": "100%", "maxParallelUpgrades": 1}
DENIED = 'admission webhook "keep.example.com" denied the request: node is frozen'
CAUSES = {"causes": [{"reason": "FieldValueInvalid", "message": DENIED, "field": "metadata"}]}


def held(stage: Stage) -> list[str]:
    """Return what events say of why gpu-1 is held."""
    found = stage.sandbox.store.list("events", "default")
    return [event["message"] for event in found if event["reason"] == names.HELD_EVENT_REASON]


class Webhook:
    """Refuse the patches of one node, as long as it is there."""

    def __init__(self, error: errors.ApiError, node: str = "gpu-1", spares: str = "nothing") -> None:
        self.error = error
        self.node = node
        self.spares = spares
        """What a patch says that is let through."""
        self.there = True
        self.asked: list[float] = []

    def __call__(self, request: Request, proceed: Proceed) -> Answer | Stream:
        mine = request.method == "PATCH" and request.path == f"/api/v1/nodes/{self.node}"
        if not (self.there and mine) or self.spares.encode() in request.body:
            return proceed()
        self.asked.append(asyncio.get_running_loop().time())
        return messages.answer(messages.status_object(self.error), self.error.status)


ERRORS = [errors.Forbidden(DENIED), errors.BadRequest(DENIED), errors.Invalid(DENIED, details=CAUSES), errors.ServerError(DENIED),
          # A webhook chooses its code, and means none of what an API server would mean by these.
          errors.TooManyRequests(DENIED), errors.Conflict(DENIED), errors.NotFound(DENIED), errors.Unauthorized(DENIED),
          errors.Invalid(DENIED, status=422, details={})]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{error.status}{'-plain' if not error.details else ''}")
@pytest.mark.parametrize("ledger", [False, True], ids=["alone", "ledger"])
def test_a_node_that_may_not_be_changed_lets_the_others_go_on(error: errors.ApiError, ledger: bool) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def play(stage: Stage) -> None:
        if ledger:
            await first_leads(stage)
        await stage.installed()
        stage.transport.interfere = webhook = Webhook(error)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-2") == stage.state("gpu-3") == State.DONE and stage.driver("gpu-3") == NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused")
        await stage.rest(600)
        assert stage.hold("gpu-1") == "WriteRefused"
        assert DENIED in str(arguments(stage.operator.plan.holds["gpu-1"].what)["message"])
        assert [line["error"] for line in stage.warnings("Action failed", object="gpu-1")] == [DENIED]
        assert any(DENIED in text for text in held(stage)), "an event on the node"
        assert stage.driver("gpu-1") == OLD
        assert stage.most_in_progress <= 1
        assert len(webhook.asked) < 30, "ever more rarely"
        told = await explanation_of(stage, "gpu-1")
        assert told.status is not None
        assert DENIED in reason_of(told), "also whoever asks, and does not have the operator's memory"
        assert told.status.label == "upgrade-done", "it was never admitted"
        assert await headline_of(stage) == "ClusterPolicy cluster-policy: 2 of 3 nodes up to date, 1 held"
        webhook.there = False
        await stage.upgraded(within=300)
        assert reason_of(await explanation_of(stage, "gpu-1")) == ""

    play()


@on_stage(gpu_nodes=3, upgrade=ONE)
async def test_a_grant_of_an_earlier_leader_does_not_hold_the_only_slot_for_ever(stage: Stage) -> None:
    await first_leads(stage)
    await stage.installed()
    granted: list[str] = []

    def dies(request: Request, proceed: Proceed) -> Answer | Stream:
        """Let the first leader write its grants, and nothing after them."""
        if granted:
            raise errors.Unreachable("gone")
        if "/leases/" in request.path and b'"value":"{\\"gpu-1' in request.body:
            granted.append(request.body.decode())
        return proceed()

    stage.transport.interfere = dies
    await stage.upgrade_to(NEW)
    await stage.until(lambda: granted)
    await stage.kill_operator()
    await take_lease(stage, "second")
    transport = stage.sandbox.transport()
    transport.interfere = webhook = Webhook(errors.Forbidden(DENIED))
    stage.transport, stage.operator = transport, operator(stage, "second", transport)
    stage.begin_operator()
    await stage.until(lambda: stage.state("gpu-2") == stage.state("gpu-3") == State.DONE and stage.driver("gpu-3") == NEW, 900)
    assert stage.most_in_progress <= 1
    webhook.there = False
    await stage.upgraded(within=300)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_node_refused_in_mid_upgrade_keeps_its_slot_and_says_why(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.transport.interfere = webhook = Webhook(errors.Forbidden(DENIED))
    await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused")
    await stage.rest(300)
    assert stage.state("gpu-2") == State.UPGRADE_REQUIRED, "the one that is refused is under way all the same"
    assert len(webhook.asked) < 40, "its labels are wanted as well"
    webhook.there = False
    await stage.upgraded(within=300)
    assert stage.most_in_progress == 1


@on_stage(gpu_nodes=1, upgrade=ONE)
async def test_a_node_refused_in_mid_upgrade_fails_at_its_deadline(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    stage.transport.interfere = Webhook(errors.Forbidden(DENIED), spares="upgrade-failed")
    await stage.until(lambda: State.FAILED in stage.entered("gpu-1"), 2000)
    assert any(DENIED in text for text in stage.events("gpu-1"))


@pytest.mark.parametrize("error", [errors.Forbidden(DENIED), errors.ServerError(DENIED), errors.Unreachable(DENIED)],
                         ids=["denied", "failed", "unanswered"])
def test_a_ledger_that_may_not_be_written_is_the_reason_of_the_nodes_whose_turn_it_is(error: errors.GpuwardError) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def play(stage: Stage) -> None:
        await first_leads(stage)
        await stage.installed()

        def refuse(request: Request, proceed: Proceed) -> Answer | Stream:
            if request.method != "PATCH" or "/leases/" not in request.path or b"admissions" not in request.body:
                return proceed()
            if not isinstance(error, errors.ApiError):
                raise error
            return messages.answer(messages.status_object(error), error.status)

        stage.transport.interfere = refuse
        await stage.upgrade_to(NEW)
        await stage.rest(300)
        held = stage.operator.plan.holds
        assert stage.hold("gpu-1") == "LedgerRefused"
        assert {stage.hold("gpu-2"), stage.hold("gpu-3")} == {"ParallelLimit"}
        assert DENIED in sentence(held["gpu-1"])
        assert DENIED in rollout(stage)[2]
        assert not stage.cordons()
        stage.transport.interfere = lambda _, proceed: proceed()
        await stage.upgraded(within=600)
        assert stage.most_in_progress == 1

    play()


@pytest.mark.parametrize("limit", [10.0, 40.0], ids=["failed", "unanswered"])
@pytest.mark.parametrize("ledger", [False, True], ids=["alone", "ledger"])
def test_a_node_whose_changes_hang_says_so_and_lets_the_others_go_on(limit: float, ledger: bool) -> None:
    @on_stage(gpu_nodes=4, upgrade=ONE)
    async def play(stage: Stage) -> None:
        if ledger:
            await first_leads(stage)
        await stage.installed()
        hangs = [True]

        def is_slow(request: Request) -> bool:
            return hangs[0] and request.method == "PATCH" and request.path == "/api/v1/nodes/gpu-1" and b"cordon" in request.body

        def fail(request: Request, proceed: Proceed) -> Answer | Stream:
            error = errors.ServerError('failed calling webhook "keep.example.com": context deadline exceeded')
            return messages.answer(messages.status_object(error), 500) if is_slow(request) else proceed()

        stage.transport.delay = lambda request: limit if is_slow(request) else 0.0
        stage.transport.interfere = fail
        await stage.upgrade_to(NEW)
        said: set[str] = set()
        begun = stage.clock.now()
        done = ("gpu-2", "gpu-3", "gpu-4")

        def listening(end: bool) -> bool:
            said.add(stage.hold("gpu-1"))
            return end

        await stage.until(lambda: listening(all(stage.driver(node) == NEW for node in done)))
        assert stage.clock.now() - begun < 400
        await stage.until(lambda: listening({"WriteUnanswered", "WriteRefused"} <= said), within=200)
        assert stage.most_in_progress == 1
        hangs[0] = False
        await stage.upgraded(within=600)

    play()


@on_stage(gpu_nodes=1)
async def test_nobody_is_evicted_from_a_node_whose_cordon_a_webhook_drops(stage: Stage) -> None:
    await stage.installed()
    await with_notebooks(stage)
    made, asked = set[str](), list[float]()
    stage.sandbox.store.subscribe(lambda event: made.add(event.obj["metadata"]["uid"]), "pods")
    before = len(stage.workload_pods())

    def drop(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method != "PATCH" or request.path != "/api/v1/nodes/gpu-1":
            return proceed()
        asked.append(stage.clock.now())
        kept = [each for each in json.loads(request.body) if each["op"] == "test" or each["path"] != "/spec/unschedulable"]
        return stage.sandbox.api.handle(dataclasses.replace(request, body=json.dumps(kept).encode()))

    stage.transport.interfere = drop
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused")
    assert "spec.unschedulable" in sentence(stage.operator.plan.holds["gpu-1"])
    await stage.rest(1)
    assert len(asked) < 10
    await stage.rest(3600)
    assert len(asked) < 100
    assert (len(made), len(stage.workload_pods()), stage.driver("gpu-1")) == (0, before, OLD)


@pytest.mark.parametrize("dropped", [names.UPGRADE_RECORD, names.UPGRADE_STATE, "/spec/unschedulable"])
def test_a_node_whose_changes_a_webhook_drops_says_so_and_lets_the_others_go_on(dropped: str) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()

        def drop(request: Request, proceed: Proceed) -> Answer | Stream:
            if request.method != "PATCH" or request.path != "/api/v1/nodes/gpu-1":
                return proceed()
            paths = (dropped.replace("/", "~1"), dropped)
            kept = [each for each in json.loads(request.body) if each["op"] == "test" or not each["path"].endswith(paths)]
            return stage.sandbox.api.handle(dataclasses.replace(request, body=json.dumps(kept).encode()))

        stage.transport.interfere = drop
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused")
        assert dropped.strip("/").replace("spec/", "spec.") in sentence(stage.operator.plan.holds["gpu-1"])
        await stage.until(lambda: [stage.driver(node) for node in ("gpu-2", "gpu-3")] == [NEW, NEW], within=7200)
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.until(lambda: stage.finished() and not stage.cordons(), within=7200)

    story()


def strips(stage: Stage, field: str, key: str) -> None:
    """Let a webhook take a label or an annotation off every node that is written, whoever had it there before."""
    def drop(request: Request, proceed: Proceed) -> Answer | Stream:
        answer = proceed()
        written = request.method == "PATCH" and request.path.startswith("/api/v1/nodes/")
        if not (written and isinstance(answer, Answer) and answer.status == 200):
            return answer
        name = request.path.rsplit("/", 1)[1]
        stage.sandbox.store.modify("nodes", None, name, lambda node: node["metadata"].get(field, {}).pop(key, None))
        return messages.answer({"apiVersion": "v1", "kind": "Node", **stage.node(name)}, 200)

    stage.transport.interfere = drop


@pytest.mark.parametrize("ledger", [False, True], ids=["alone", "ledger"])
@pytest.mark.parametrize(("field", "key"), [("annotations", names.UPGRADE_RECORD), ("labels", names.UPGRADE_STATE)])
def test_no_node_stays_cordoned_whose_memory_a_webhook_drops(field: str, key: str, ledger: bool) -> None:
    """Without it nobody would know whose the cordon is, nor when to try again."""
    @on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 2})
    async def story(stage: Stage) -> None:
        if ledger:
            await first_leads(stage)
        await stage.installed()
        await with_notebooks(stage)
        pods = {pod["metadata"]["uid"] for pod in stage.workload_pods()}
        strips(stage, field, key)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"WriteRefused"}, 1200)
        await stage.rest(900)
        assert stage.cordons() == []
        assert State.FAILED not in stage.states().values()
        assert {pod["metadata"]["uid"] for pod in stage.workload_pods()} == pods
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.upgraded()
        assert stage.cordons() == []

    story()


@pytest.mark.parametrize(("field", "key"), [("annotations", names.UPGRADE_RECORD), ("labels", names.UPGRADE_STATE)])
def test_a_cordon_without_memory_is_lifted_though_others_write_to_the_node_meanwhile(field: str, key: str) -> None:
    """As the node lifecycle controller does, which taints a node as soon as it is cordoned."""
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def story(stage: Stage) -> None:
        await stage.installed()
        strips(stage, field, key)
        drops = stage.transport.interfere

        def tainted(request: Request, proceed: Proceed) -> Answer | Stream:
            answer = drops(request, proceed)
            if b"/spec/unschedulable" in (request.body or b"") and b'"add"' in (request.body or b""):
                name = request.path.rsplit("/", 1)[1]
                stage.sandbox.store.modify("nodes", None, name, lambda node: node["metadata"]["labels"].update(other="1"))
            return answer

        stage.transport.interfere = tainted
        await stage.upgrade_to(NEW)
        await stage.until(lambda: {stage.hold(node) for node in stage.states()} == {"WriteRefused"}, 1200)
        await stage.rest(900)
        assert stage.cordons() == []
        stage.transport.interfere = lambda request, proceed: proceed()
        await stage.upgraded()
        assert stage.cordons() == []

    story()


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_cordon_that_is_taken_back_leaves_what_a_person_asked_for(stage: Stage) -> None:
    def asked() -> str | None:
        found: str | None = stage.node("gpu-1")["metadata"]["annotations"].get(names.UPGRADE_REQUESTED)
        return found

    await stage.installed()
    strips(stage, "annotations", names.UPGRADE_RECORD)
    await stage.user.patch_merge(resources.NODES, "gpu-1", {"metadata": {"annotations": {names.UPGRADE_REQUESTED: "true"}}})
    await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused", 1200)
    await stage.rest(900)
    assert (asked(), stage.cordons()) == ("true", [])
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.until(lambda: asked() is None and stage.all_are(State.DONE) and not stage.cordons(), 3600)


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_a_driver_pod_that_may_not_be_read_keeps_no_node_for_ever(stage: Stage) -> None:
    """A node is called done after a last look at its driver pod; the right to `get` pods is lacking, that to `list` is not."""
    def unreadable(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == "GET" and "/pods/nvidia-driver-daemonset" in request.path:
            return messages.refusal(errors.Forbidden("pods is forbidden"))
        return proceed()

    await stage.installed()
    stage.transport.interfere = unreadable
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.VALIDATION_REQUIRED)
    await stage.until(lambda: stage.hold("gpu-1") == "WriteRefused")
    assert "pods is forbidden" in sentence(stage.operator.plan.holds["gpu-1"])
    await stage.upgraded()
