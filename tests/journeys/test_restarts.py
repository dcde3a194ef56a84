"""The operator is killed anywhere in a rollout: the next one ends it the same way, and harms nothing twice."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuward import names
from gpuward.model.states import State
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.stage import NEW, Proceed, Stage, blind_to_budgets, on_stage

ONE = {"maxUnavailable": "100%", "maxParallelUpgrades": 1}


@pytest.mark.parametrize("state", [
    "upgrade-required", "cordon-required", "pod-deletion-required", "pod-restart-required", "validation-required",
    "upgrade-done",
])
def test_killed_when_a_node_has_entered_a_state(state: str) -> None:
    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def play(stage: Stage) -> None:
        evicted = _count_evictions(stage)
        await stage.installed()
        await stage.deploy("inference", 2, max_unavailable=1)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: any(_passed(stage, node, State(state)) for node in stage.states()))
        await stage.restart_operator()
        await stage.upgraded()
        assert stage.cordons() == []
        assert stage.most_in_progress == 1
        assert set(evicted.values()) <= {1}, "no pod is evicted twice"

    play()


def _passed(stage: Stage, node: str, state: State) -> bool:
    route = list(State)
    shown = stage.entered(node)
    return any(route.index(one) >= route.index(state) for one in shown)


def _count_evictions(stage: Stage) -> Counter[str]:
    """Count, by pod, the evictions that the server accepts."""
    evicted: Counter[str] = Counter()

    def count(request: Request, proceed: Proceed) -> Answer | Stream:
        answer = proceed()
        if request.path.endswith("/eviction") and isinstance(answer, Answer) and answer.status == 201:
            evicted[request.path] += 1
        return answer

    stage.transport.interfere = count
    return evicted


@pytest.mark.weakness(34, 35)
@pytest.mark.parametrize("number", range(1, 22, 2))
def test_killed_at_a_write(number: int) -> None:
    """Kill the operator right after the server has carried out its n-th write of the rollout, before it hears of it."""

    @on_stage(gpu_nodes=2, upgrade=ONE)
    async def play(stage: Stage) -> None:
        await stage.installed()
        await stage.deploy("inference", 2, max_unavailable=1)
        writes = 0
        evicted: Counter[str] = Counter()

        def count(request: Request, proceed: Proceed) -> Answer | Stream:
            nonlocal writes
            answer = proceed()
            if request.path.endswith("/eviction") and isinstance(answer, Answer) and answer.status == 201:
                evicted[request.path] += 1
            if request.method != "GET" and "/events" not in request.path:
                writes += 1
                if writes == number and stage._work is not None:
                    stage._work.cancel()
            return answer

        stage.transport.interfere = count
        await stage.upgrade_to(NEW)
        await stage.sandbox.until(lambda: writes >= number)
        await stage.restart_operator()
        await stage.upgraded()
        assert stage.cordons() == []
        assert stage.most_in_progress == 1
        assert set(evicted.values()) <= {1}
        record = stage.node("gpu-1")["metadata"]["annotations"][names.UPGRADE_RECORD]
        assert '"cordon"' not in record

    play()


@pytest.mark.weakness(34)
@on_stage(gpu_nodes=2, upgrade=ONE, interfere=blind_to_budgets)
async def test_the_time_that_a_step_has_taken_outlives_the_operator(stage: Stage) -> None:
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    begun = stage.clock.now()
    for _ in range(4):
        await stage.rest(60)
        await stage.restart_operator()
    await stage.until(lambda: stage.state("gpu-1") == State.FAILED)
    assert 295 < stage.clock.now() - begun < 301


@on_stage(gpu_nodes=2, upgrade={**ONE, "podDeletion": {"timeoutSeconds": 0}}, interfere=blind_to_budgets)
async def test_a_restart_changes_nothing_that_is_said_of_a_node_whose_pod_stays(stage: Stage) -> None:
    """That its eviction was refused is forgotten, and met again before anything else is said."""
    await stage.installed()
    await stage.deploy("inference", node="gpu-1", max_unavailable=0)
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    await stage.rest(300)
    said: list[str] = []
    for key in ("clusterpolicies.nvidia.com", "events"):
        stage.sandbox.store.subscribe(lambda event: said.append(event.resource_key), key)
    await stage.restart_operator()
    await stage.until(lambda: stage.hold("gpu-1") == "EvictionRefused")
    await stage.rest(120)
    assert said == []
