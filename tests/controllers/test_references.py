"""How often what a policy refers to is asked for while the API server does not answer as it should."""

from __future__ import annotations

import asyncio
import itertools

import pytest
import structlog

from gpuward.controllers.references import LOOK_AGAIN, FollowedLater, ReferencedObjects
from gpuward.kube.http.client import Client
from gpuward.kube.http.transport import Response
from gpuward.model.snapshot import References, Snapshot
from gpuward.operands.wanted import ReferencedNames
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.ports import Clock
from kubesandbox.timeloop import EPOCH, LoopClock, run_virtual
from tests.kube.scripted import Asked, ScriptedTransport
from tests.policy.test_clusterpolicy import snapshot, view

SEEN = snapshot(view())


class Unchanged:
    """Observe a cluster with one policy, in which nothing happens."""

    def observe(self) -> Snapshot:
        return SEEN

    async def changed(self, timeout: float | None) -> bool:
        await asyncio.sleep(1e9 if timeout is None else timeout)
        return False
NOTHING_LATER = FollowedLater(lambda: None, lambda: None)


def refusing(status: int, until: float) -> ScriptedTransport:
    """Return a transport that refuses everything for some seconds; then there is nothing."""

    def answer(asked: Asked) -> Response:
        return Response(status if asked.at - EPOCH < until else 404, {}, b"")

    return ScriptedTransport(answer)


def looked(transport: ScriptedTransport, seconds: float, clock: Clock | None = None) -> tuple[References, list[float]]:
    """Let the facts be looked up for some seconds; return when each look began."""
    found = [References()]
    looking = ReferencedObjects(
        Client(transport), "gpu-operator", PolicyReader(), clock or LoopClock(), NOTHING_LATER, found.append)

    async def run() -> None:
        task = asyncio.create_task(looking.run(Unchanged()))
        await asyncio.sleep(seconds)
        task.cancel()

    run_virtual(run)
    return found[-1], [round(asked.at - EPOCH, 1) for asked in transport.asked if "customresourcedefinitions" in asked.path]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_told_once_and_the_look_repeated_soon(status: int) -> None:
    with structlog.testing.capture_logs() as said:
        found, looks = looked(refusing(status, until=3.0), seconds=5.0)
    assert looks == [0.0, 0.5, 1.5, 3.5]
    assert [line["log_level"] for line in said] == ["warning"]
    assert found.known_for(SEEN.policies[0])


def test_looks_at_a_server_that_keeps_refusing_get_rarer() -> None:
    found, looks = looked(refusing(401, until=1e6), seconds=300.0)
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert gaps[:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert set(gaps[5:]) == {LOOK_AGAIN}
    assert not found.known_for(SEEN.policies[0])


class SetBack(LoopClock):
    """Read a clock that is set back by an hour after ten seconds."""

    def now(self) -> float:
        now = super().now()
        return now if now < EPOCH + 10 else now - 3600


def test_a_clock_that_is_set_back_puts_no_look_off() -> None:
    found, looks = looked(refusing(403, until=12.0), seconds=60.0, clock=SetBack())
    assert looks[-1] < 10 + LOOK_AGAIN
    assert found.known_for(SEEN.policies[0])


@pytest.mark.parametrize("name", ["200%", "..", "../secrets/x", "A", "-a"])
def test_a_name_that_nothing_can_have_is_missing(name: str) -> None:
    """The API server would not answer 404 for it, and the policy would be held up without a word about the field."""
    transport = refusing(400, until=0.0)
    looking = ReferencedObjects(
        Client(transport), "gpu-operator", PolicyReader(), LoopClock(), NOTHING_LATER, lambda found: None)
    found = run_virtual(lambda: looking.look(ReferencedNames(config_maps=frozenset({name}), secrets=frozenset({name}))))
    assert ["customresourcedefinitions" in asked.path for asked in transport.asked] == [True]
    assert not found.config_maps
    assert not found.secrets
