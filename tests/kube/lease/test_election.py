"""Candidates against one Lease, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate, ElectionListeners, Elector
from gpuward.kube.lease.rules import LeaseTiming
from sandbox_helpers.virtual import virtual_with
from tests.kube.leases import LeaseServer
from tests.kube.scripted import ScriptedTransport


class Member:
    """Be a candidate and remember when it led."""

    def __init__(self, server: LeaseServer, identity: str) -> None:
        self.identity = identity
        self.heard: list[bool] = []
        self.silences: list[float] = []
        self.transport = ScriptedTransport(lambda asked: server.answer(identity, asked))
        self.elector = Elector(
            Client(self.transport),
            Candidate(identity, "gpu-operator"),
            random=Random(identity),
            wall=lambda: asyncio.get_running_loop().time(),
            changed=self.heard.append,
            told=ElectionListeners(self.silences.append),
        )
        self.task = asyncio.create_task(self.elector.run())

    async def stop(self) -> None:
        """Shut down cleanly."""
        self.task.cancel()
        await asyncio.wait([self.task])

    def kill(self) -> None:
        """Vanish without a word: nothing that it sends arrives any more."""

        def nobody(_: object) -> Any:
            return asyncio.get_running_loop().create_future()

        self.transport.answer = nobody


async def two_members(server: LeaseServer) -> tuple[Member, Member]:
    """Return a candidate that has led for some seconds, and another one."""
    first = Member(server, "first")
    await asyncio.sleep(1)
    second = Member(server, "second")
    await asyncio.sleep(10)
    return first, second


@asynccontextmanager
async def lease_server() -> AsyncIterator[LeaseServer]:
    """Yield a server; end the candidates that are left."""
    yield LeaseServer()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


with_server = virtual_with(lease_server)


@with_server
async def test_one_of_two_leads_and_renews(server: LeaseServer) -> None:
    first = Member(server, "first")
    await asyncio.sleep(1)
    second = Member(server, "second")
    await asyncio.sleep(60)
    assert (first.heard, second.heard) == ([True], [])
    assert second.elector.holder == "first"
    assert server.spec["leaseTransitions"] == 0
    assert server.spec["acquireTime"] < server.spec["renewTime"]
    assert first.elector.valid(asyncio.get_running_loop().time())
    assert not second.elector.valid(asyncio.get_running_loop().time())
    assert 25 <= server.requests.count("first PUT") <= 32
    assert server.requests.count("first GET") == 1


@with_server
async def test_a_clean_end_hands_over_at_once(server: LeaseServer) -> None:
    first, second = await two_members(server)
    await first.stop()
    assert first.heard == [True, False]
    assert server.holder == ""
    await asyncio.sleep(1.3)
    assert second.heard == [True]
    assert server.spec["leaseTransitions"] == 1


@with_server
async def test_after_a_sudden_end_the_next_waits_for_the_leases_time(server: LeaseServer) -> None:
    first, second = await two_members(server)
    first.kill()
    begun = asyncio.get_running_loop().time()
    while not second.heard:
        await asyncio.sleep(0.1)
    waited = asyncio.get_running_loop().time() - begun
    assert 9 <= waited <= 12.3
    assert first.heard == [True, False]


@with_server
async def test_whenever_the_leader_ends_the_next_leads_within_little_more_than_the_leases_time(server: LeaseServer) -> None:
    leader, other = Member(server, "first"), Member(server, "second")
    loop = asyncio.get_running_loop()
    for round in range(20):
        await asyncio.sleep(20 + 0.37 * round)
        if server.holder != leader.identity:
            leader, other = other, leader
        leader.kill()
        killed, renewed = loop.time(), server.renewed
        while server.holder != other.identity:
            assert loop.time() < killed + LeaseTiming().duration + 1.3
            await asyncio.sleep(0.05)
        assert loop.time() > renewed + LeaseTiming().duration
        leader = Member(server, f"next {round}")


@with_server
async def test_of_two_that_take_over_together_one_leads(server: LeaseServer) -> None:
    first = Member(server, "first")
    await asyncio.sleep(1)
    others = [Member(server, "second"), Member(server, "third")]
    await asyncio.sleep(10)
    first.kill()
    server.delay = 0.5  # each has read that the Lease is free before the other one takes it
    await asyncio.sleep(15)
    assert sorted(other.heard for other in others) == [[], [True]]
    assert server.spec["leaseTransitions"] == 1


@with_server
async def test_a_server_that_takes_seconds_for_each_answer_costs_nothing(server: LeaseServer) -> None:
    first, second = await two_members(server)
    server.delay = 3.5
    await asyncio.sleep(120)
    assert (first.heard, second.heard) == ([True], [])


@with_server
async def test_one_connection_that_dies_silently_costs_nothing_and_is_told(server: LeaseServer) -> None:
    begun = asyncio.get_running_loop().time()
    only = Member(server, "only")
    await asyncio.sleep(9)
    server.silent = True
    await asyncio.sleep(4.9)
    server.silent = False  # the next attempt goes over another connection
    await asyncio.sleep(10)
    assert only.heard == [True]
    assert only.silences == [begun + 10]
    assert only.elector.failure is None


@with_server
async def test_who_is_cut_off_stops_leading_before_another_begins(server: LeaseServer) -> None:
    first = Member(server, "first")
    await asyncio.sleep(1)
    second = Member(server, "second")
    loop = asyncio.get_running_loop()
    for _ in range(5):
        await asyncio.sleep(7.3)
        leader, other = (first, second) if server.holder == "first" else (second, first)
        server.cut_off = {leader.identity}
        while server.holder != other.identity:
            await asyncio.sleep(0.05)
            assert not (leader.elector.leading and other.elector.leading)
            assert not (leader.elector.valid(loop.time()) and other.elector.valid(loop.time()))
        assert leader.heard[-1] is False
        assert "no route" in str(leader.elector.failure)
        server.cut_off = set()
    assert server.spec["leaseTransitions"] == 5


@with_server
async def test_a_short_outage_costs_nothing(server: LeaseServer) -> None:
    only = Member(server, "only")
    await asyncio.sleep(10)
    server.cut_off = {"only"}
    await asyncio.sleep(5)
    server.cut_off = set()
    await asyncio.sleep(10)
    assert only.heard == [True]
    assert only.elector.failure is None


@with_server
async def test_a_server_that_does_not_answer_ends_leading_at_the_deadline(server: LeaseServer) -> None:
    only = Member(server, "only")
    await asyncio.sleep(10)
    server.silent = True
    await asyncio.sleep(8.1)
    assert only.heard == [True, False]
    assert not only.elector.valid(asyncio.get_running_loop().time())
    server.silent = False
    await asyncio.sleep(15)
    assert only.heard == [True, False, True]
    assert len(only.silences) == 1


@with_server
async def test_somebody_elses_note_on_the_lease_is_kept(server: LeaseServer) -> None:
    only = Member(server, "only")
    await asyncio.sleep(10)
    assert server.lease is not None
    lease = server.lease
    server.store({**lease, "metadata": {**lease["metadata"], "annotations": {"ledger": "n1"}}})
    await asyncio.sleep(10)
    assert only.heard == [True]
    assert server.lease["metadata"]["annotations"] == {"ledger": "n1"}


@with_server
async def test_a_lease_that_moves_all_the_time_is_still_renewed(server: LeaseServer) -> None:
    only = Member(server, "only")
    for _ in range(100):
        await asyncio.sleep(1)
        server.conflicts = 1
    assert only.heard == [True]


@with_server
async def test_a_lost_answer_is_read_again(server: LeaseServer) -> None:
    server.lose_answers = True
    only = Member(server, "only")
    await asyncio.sleep(8)
    assert server.holder == "only"
    assert only.heard == []
    server.lose_answers = False
    await asyncio.sleep(5)
    assert only.heard == [True]


@with_server
async def test_a_lease_taken_by_force_ends_leading(server: LeaseServer) -> None:
    only = Member(server, "only")
    await asyncio.sleep(10)
    assert server.lease is not None
    server.store({**server.lease, "spec": {**server.spec, "holderIdentity": "nvidia", "renewTime": "later"}})
    await asyncio.sleep(3)
    assert only.heard == [True, False]
    assert only.elector.holder == "nvidia"


@with_server
async def test_a_deleted_lease_is_made_anew(server: LeaseServer) -> None:
    only = Member(server, "only")
    await asyncio.sleep(10)
    server.lease = None
    await asyncio.sleep(6)
    assert server.holder == "only"
    assert only.heard == [True, False, True]  # somebody else may have led meanwhile


@with_server
async def test_who_slept_while_another_led_and_left_begins_anew(server: LeaseServer) -> None:
    sleeper = Member(server, "sleeper")
    await asyncio.sleep(10)
    assert server.lease is not None
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": "later", "leaseTransitions": 2}
    server.store({**server.lease, "spec": {**server.spec, **released}})
    await asyncio.sleep(3)
    assert server.holder == "sleeper"
    assert sleeper.heard == [True, False, True]


@with_server
async def test_a_candidate_that_never_led_releases_nothing(server: LeaseServer) -> None:
    first = Member(server, "first")
    await asyncio.sleep(1)
    second = Member(server, "second")
    await asyncio.sleep(5)
    await second.stop()
    assert server.holder == "first"
    assert second.heard == []
    assert first.heard == [True]


@with_server
async def test_a_release_that_finds_no_answer_does_not_hold_up_the_end(server: LeaseServer) -> None:
    only = Member(server, "only")
    await asyncio.sleep(10)
    server.silent = True
    begun = asyncio.get_running_loop().time()
    await only.stop()
    assert asyncio.get_running_loop().time() - begun <= 2
    assert only.heard == [True, False]
