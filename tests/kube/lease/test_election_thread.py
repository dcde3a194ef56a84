"""The election on its own thread, in real time but without waiting for more than the first answers."""

from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest

from gpuward.errors import EndedByItself, KubeconfigError
from gpuward.kube.http.transport import Response, Transport
from gpuward.kube.lease.election import Candidate, ElectionListeners
from gpuward.kube.lease.election_thread import ElectionThread
from gpuward.kube.lease.rules import LeaseTiming
from tests.kube.leases import LeaseServer
from tests.kube.scripted import Asked, ScriptedTransport

QUICK = LeaseTiming(duration=1.5, renew_deadline=1.0, retry=0.02)


class Heard:
    """Remember what was told, on which thread, and let a test wait for it."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.threads: set[int] = set()
        self.news = asyncio.Event()

    def __call__(self, leading: bool) -> None:
        self.told.append(leading)
        self.threads.add(threading.get_ident())
        self.news.set()


def test_it_leads_from_its_own_thread_and_releases_at_the_end() -> None:
    server = LeaseServer()
    transports: list[ScriptedTransport] = []

    renewed = threading.Event()

    async def answer(asked: Asked) -> Response:
        response = await server.answer("me", asked)
        if server.version >= 5:
            renewed.set()
        return response

    def connect() -> Transport:
        transports.append(ScriptedTransport(answer))
        return transports[-1]

    async def run() -> Heard:
        heard = Heard()
        election = ElectionThread(
            connect, Candidate("me", "ns", timing=QUICK), random=Random(1), changed=heard
        )
        assert not election.valid()
        election.start()
        async with asyncio.timeout(10):
            await heard.news.wait()
            assert election.valid()
            assert election.alive
            assert election.holder == "me"
            assert election.failure is None
            # The event loop of the operator is stuck: the Lease must be renewed all the same.
            assert renewed.wait(5)
            await election.stop()
            await election.ended()
        assert not election.valid()
        return heard

    heard = asyncio.run(run())
    assert heard.told == [True, False]
    assert heard.threads == {threading.get_ident()}
    assert server.holder == ""
    assert [transport.closed for transport in transports] == [True]


def test_an_idle_operator_hears_the_servers_time_from_renewals() -> None:
    """Its own connection may be silent for minutes, while watches bring nothing: a clock that is set forward would be believed
    only a minute after the next rollout began.
    """
    server, told = LeaseServer(), list[tuple[float, float, int]]()

    async def answer(asked: Asked) -> Response:
        response = await server.answer("me", asked)
        return Response(response.status, {**response.headers, "Date": "Tue, 01 Dec 2026 12:00:00 GMT"}, response.body)

    async def run() -> float:
        enough, begun = asyncio.Event(), asyncio.get_running_loop().time()

        def heard(date: float, asked: float) -> None:
            told.append((date, asked, threading.get_ident()))
            if len(told) >= 5:
                enough.set()

        election = ElectionThread(lambda: ScriptedTransport(answer), Candidate("me", "ns", timing=QUICK), random=Random(1),
                                  changed=lambda _: None, told=ElectionListeners(heard=heard))
        election.start()
        async with asyncio.timeout(10):
            await enough.wait()
            await election.stop()
        return begun

    begun = asyncio.run(run())
    assert {date for date, _, _ in told} == {1796126400.0}
    assert all(asked >= begun for _, asked, _ in told), "by the clock of all event loops of the process"
    assert {thread for _, _, thread in told} == {threading.get_ident()}


def test_what_ends_the_thread_is_told() -> None:
    def connect() -> Transport:
        raise KubeconfigError("the file is gone")

    async def run() -> None:
        election = ElectionThread(connect, Candidate("me", "ns"), random=Random(1), changed=lambda _: None)
        election.start()
        async with asyncio.timeout(10):
            with pytest.raises(KubeconfigError, match="the file is gone"):
                await election.ended()
            await election.stop()

    asyncio.run(run())


@pytest.mark.parametrize(("end", "told"), [
    (SystemExit(3), "the leader election was broken off: SystemExit 3"),
    (asyncio.CancelledError(), "the leader election ended by itself"),
    (KeyError("bug"), "bug"),
])
def test_however_the_thread_ends_it_is_told_and_seen(end: BaseException, told: str) -> None:
    """Nobody may believe that this process still stands for election."""
    def answer(asked: Asked) -> Response:
        raise end

    async def run() -> None:
        election = ElectionThread(
            lambda: ScriptedTransport(answer), Candidate("me", "ns", timing=QUICK), random=Random(1), changed=lambda _: None
        )
        election.start()
        async with asyncio.timeout(10):
            with pytest.raises((EndedByItself, KeyError), match=told):
                await election.ended()
            await election.stop()
        assert not election.alive
        assert not election.valid()

    asyncio.run(run())


def test_it_can_be_stopped_at_once() -> None:
    server = LeaseServer()

    async def run() -> None:
        election = ElectionThread(
            lambda: ScriptedTransport(lambda asked: server.answer("me", asked)),
            Candidate("me", "ns", timing=QUICK), random=Random(1), changed=lambda _: None,
        )
        election.start()
        async with asyncio.timeout(10):
            await election.stop()
            await election.ended()

    asyncio.run(run())
    assert server.holder == ""
