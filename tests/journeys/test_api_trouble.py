"""An API server that refuses, loses answers and contradicts: the rollout ends all the same, within its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from gpuward import errors
from gpuward.model.states import State
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.stage import NEW, OLD, Proceed, Stage, on_stage

ONE = {"maxUnavailable": "100%", "maxParallelUpgrades": 1}


def refuse(error: errors.ApiError) -> Answer:
    return messages.answer(messages.status_object(error), error.status)


def conflict(request: Request, proceed: Proceed) -> Answer | Stream:
    return refuse(errors.Conflict("the object has been modified"))


def broken(request: Request, proceed: Proceed) -> Answer | Stream:
    return refuse(errors.ServerError("etcd has no leader"))


def busy(request: Request, proceed: Proceed) -> Answer | Stream:
    return refuse(errors.TooManyRequests("too many requests", details={"retryAfterSeconds": 1}))


def unreachable(request: Request, proceed: Proceed) -> Answer | Stream:
    raise errors.Unreachable("connection refused")


def lost(request: Request, proceed: Proceed) -> Answer | Stream:
    """Do what was asked for, and lose the answer."""
    proceed()
    raise errors.Unreachable("connection reset")


def sometimes(trouble: Callable[[Request, Proceed], Answer | Stream], share: float = 0.3) -> Callable[..., Answer | Stream]:
    """Make trouble for a share of the writes and of the reads of single objects, chosen by a fixed seed."""
    random = Random(7)

    def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
        watch = request.query.get("watch") == "true"
        return trouble(request, proceed) if not watch and random.random() < share else proceed()

    return interfere


@pytest.mark.weakness(4, 41)
@pytest.mark.parametrize("trouble", [conflict, broken, busy, unreachable, lost])
def test_a_rollout_survives(trouble: Callable[[Request, Proceed], Answer | Stream]) -> None:
    @on_stage(gpu_nodes=3, upgrade=ONE)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("inference", 3, max_unavailable=1)
        evicted: Counter[str] = Counter()
        disturb = sometimes(trouble)

        def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
            def served() -> Answer | Stream:
                answer = proceed()
                if request.path.endswith("/eviction") and isinstance(answer, Answer) and answer.status == 201:
                    evicted[request.path] += 1
                return answer

            return disturb(request, served)

        stage.transport.interfere = interfere
        await stage.upgrade_to(NEW)
        await stage.upgraded()
        assert stage.most_in_progress == 1
        assert stage.cordons() == []
        assert set(evicted.values()) <= {1}

    play()


@pytest.mark.parametrize("trouble", [conflict, broken, unreachable, lost])
def test_an_installation_survives(trouble: Callable[[Request, Proceed], Answer | Stream]) -> None:
    @on_stage(gpu_nodes=2, interfere=sometimes(trouble))
    async def play(stage: Stage) -> None:
        await stage.installed()
        assert stage.drivers() == [OLD]

    play()


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_watches_that_break_all_the_time_only_cost_time(stage: Stage) -> None:
    await stage.installed()
    await stage.upgrade_to(NEW)
    for _ in range(60):
        await stage.rest(3)
        stage.transport.break_streams()
    await stage.upgraded()
    assert stage.most_in_progress == 1


def forbid(method: str, resource: str) -> Callable[[Request, Proceed], Answer | Stream]:
    """Refuse a method on a resource, as missing RBAC does."""

    def interfere(request: Request, proceed: Proceed) -> Answer | Stream:
        if request.method == method and resource in request.path.split("/"):
            return refuse(errors.Forbidden(f'{resource} is forbidden: User "gpuward" cannot do that'))
        return proceed()

    return interfere


@on_stage(gpu_nodes=2, upgrade=ONE, interfere=forbid("POST", "services"))
async def test_a_kind_that_may_not_be_written_is_named_once_and_the_rest_works(stage: Stage) -> None:
    await stage.until(lambda: stage.finished(OLD))
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.rest(600)
    told = "Failed to reconcile state-operator-metrics: Service gpu-operator cannot be written: services is forbidden: "
    assert stage.condition()["message"].startswith(told)
    lines = [line for line in stage.warnings() if "forbidden" in str(line)]
    assert sorted(line["msg"] for line in lines) == ["Action failed", "ClusterPolicy notReady"], "each once"
    assert next(line for line in lines if line["msg"] == "Action failed")["object"].startswith("Service/")
    tries = stage.client.stats.total("create", "services")
    await stage.rest(300)
    assert stage.client.stats.total("create", "services") - tries <= 2 * 10 + 2, "each of two Services every 30 s"


@on_stage(gpu_nodes=2, upgrade=ONE)
async def test_nodes_that_may_not_be_patched_hold_the_rollout_and_flood_nobody(stage: Stage) -> None:
    await stage.installed()
    stage.transport.interfere = forbid("PATCH", "nodes")
    before = stage.client.stats.total("patch", "nodes")
    await stage.upgrade_to(NEW)
    await stage.rest(300)
    assert set(stage.states().values()) == {"upgrade-done"}
    assert stage.client.stats.total("patch", "nodes") - before <= 2 * 18
    told = [line for line in stage.warnings() if "forbidden" in str(line)]
    assert len(told) == 1, told
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.upgraded()


@on_stage(gpu_nodes=2, upgrade=ONE, interfere=forbid("GET", "services"))
async def test_a_kind_that_may_not_be_listed_is_named_once_and_the_rest_works(stage: Stage) -> None:
    await stage.until(lambda: stage.all_are(State.DONE))
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.rest(300)
    told = [line for line in stage.warnings() if "forbidden" in str(line) and line["logger"] == "setup"]
    assert len(told) == 1, told
    assert told[0]["resource"] == "services"
    assert stage.condition()["reason"] == "ReconcileFailed"
    assert "Service objects cannot be listed: services is forbidden" in stage.condition()["message"]
    assert stage.client.stats.total("create", "services") == 0, "it might be there already"
    stage.transport.interfere = lambda request, proceed: proceed()
    await stage.installed()


@on_stage(gpu_nodes=1, upgrade=ONE)
async def test_evictions_that_are_forbidden_back_off_and_fail_the_node_with_the_cause(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1")
    stage.transport.interfere = forbid("POST", "eviction")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    assert any("eviction is forbidden" in text for text in stage.events("gpu-1", "Warning"))
    assert stage.client.stats.total("create", "pods/eviction") <= 15
    assert stage.driver("gpu-1") == OLD
    assert not stage.cordoned("gpu-1")
