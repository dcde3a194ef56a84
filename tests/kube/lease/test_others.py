"""Operators in different namespaces: each holds a Lease of its own, and still only one of them acts."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from gpuward import names
from gpuward.errors import Forbidden, GpuwardError
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate, ElectionListeners, Elector
from gpuward.kube.lease.others import LOOK_AGAIN, LOOK_CLOSER, UNRENEWED, Holder
from gpuward.kube.lease.rules import LeaseTiming
from gpuward.kube.resources import LEASES
from gpuward.sandbox.transport import InProcessTransport
from kubesandbox.api import ApiServer
from kubesandbox.builders import namespace
from kubesandbox.messages import Answer, Request, Stream, refusal
from kubesandbox.store import Store
from kubesandbox.timeloop import run_virtual
from sandbox_helpers.virtual import virtual_with

DURATION = LeaseTiming().duration
NVIDIAS = LeaseTiming(duration=15, renew_deadline=10)


class World:
    """Hold an API server with some namespaces, and those who stand for election there."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.api = ApiServer(Store(self.now))
        for name in ("a", "b", "nvidia"):
            self.api.store.create("namespaces", namespace(name))
        self.members: list[Member] = []

    @property
    def acting(self) -> list[str]:
        """Return who acts now."""
        return [member.name for member in self.members if member.elector.valid(self.now())]

    async def never_two(self, seconds: float, every: float = 0.01) -> set[str]:
        """Let time pass; fail if two act at once; return who acted."""
        acted: set[str] = set()
        end = self.now() + seconds
        while self.now() < end:
            assert len(self.acting) <= 1, self.acting
            acted |= set(self.acting)
            await asyncio.sleep(every)
        return acted


class Member:
    """Stand for election in a namespace."""

    def __init__(self, world: World, name: str, place: str, *, seed: Any = 0, looks: bool = True, rights: str = "all",
                 latency: float = 0.004) -> None:
        self.name = name
        self.blockers: list[Holder | None] = []
        self.refusals: list[GpuwardError] = []
        self.rights = rights
        transport = InProcessTransport(world.api, latency=latency)
        transport.interfere = self._interfere
        self.client = Client(transport)
        timing = LeaseTiming() if looks else NVIDIAS
        self.elector = Elector(
            self.client, Candidate(f"{name}_1f", place, timing=timing, looks_around=looks), random=Random(f"{name}{seed}"),
            wall=world.now, changed=lambda leading: None,
            told=ElectionListeners(blocked=self.blockers.append, refused=self.refusals.append),
        )
        self.task = asyncio.create_task(self.elector.run())
        world.members.append(self)

    def _interfere(self, request: Request, proceed: Any) -> Answer | Stream:
        own = "/namespaces/" in request.path
        if self.rights == "none" or (self.rights == "own" and not own):
            return refusal(Forbidden(f"{request.path} is forbidden"))
        answer: Answer | Stream = proceed()
        return answer

    async def stop(self) -> None:
        """Shut down cleanly."""
        self.task.cancel()
        await asyncio.wait([self.task])


class Nothing:
    """Make a world for the time of a test."""

    async def __aenter__(self) -> World:
        return World()

    async def __aexit__(self, *_: object) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


with_world = virtual_with(Nothing)


@with_world
async def test_one_in_another_namespace_waits_until_the_first_is_gone_and_says_for_whom(world: World) -> None:
    first = Member(world, "first", "a")
    await asyncio.sleep(5)
    second = Member(world, "second", "b")
    assert await world.never_two(300) == {"first"}
    (blocker,) = second.blockers
    assert blocker is not None
    assert (blocker.identity, blocker.namespace) == ("first_1f", "a")
    await first.stop()
    assert await world.never_two(5) == {"second"}
    assert second.blockers[1:] == [None]


@with_world
async def test_one_that_vanished_is_waited_for_as_long_as_its_lease_holds(world: World) -> None:
    first = Member(world, "first", "a")
    await asyncio.sleep(5)
    first.rights = "none"
    Member(world, "second", "b")
    assert await world.never_two(DURATION - 1) <= {"first"}
    assert await world.never_two(4) == {"second"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("apart", [0.0, 0.001, 0.01])
def test_of_two_that_begin_at_once_one_acts(seed: int, apart: float) -> None:
    async def main() -> None:
        world = World()
        Member(world, "first", "a", seed=seed, latency=0.002)
        await asyncio.sleep(apart)
        Member(world, "second", "b", seed=seed, latency=0.003)
        await world.never_two(20, every=0.001)
        assert len(world.acting) == 1

    run_virtual(main)


@with_world
async def test_one_that_acts_gives_way_to_an_operator_that_does_not_look(world: World) -> None:
    """NVIDIA's operator knows of no namespace but its own; where the two differ, it cannot be told to wait."""
    ours = Member(world, "ours", "a")
    await asyncio.sleep(5)
    nvidias = Member(world, "nvidias", "nvidia", looks=False)
    await asyncio.sleep(LOOK_AGAIN + LOOK_CLOSER + 3)
    assert world.acting == ["nvidias"]
    await nvidias.stop()
    await asyncio.sleep(3)
    assert world.acting == ["ours"]
    assert [holder and holder.namespace for holder in ours.blockers] == ["nvidia", None]


@with_world
async def test_who_may_not_look_elsewhere_still_waits_for_the_one_beside_it(world: World) -> None:
    Member(world, "first", "a", rights="own")
    await asyncio.sleep(5)
    Member(world, "second", "a", rights="own")
    assert await world.never_two(120) == {"first"}


@with_world
async def test_a_lease_that_may_not_be_used_is_believed_after_some_seconds(world: World) -> None:
    member = Member(world, "first", "a", rights="none")
    await asyncio.sleep(4)
    assert not member.elector.unusable, "an API server that has just started refuses everything for a moment"
    await asyncio.sleep(6)
    assert member.elector.unusable
    assert [type(error) for error in member.refusals] == [Forbidden]
    member.rights = "all"
    await asyncio.sleep(3)
    assert not member.elector.unusable
    assert world.acting == ["first"]


@with_world
async def test_whoever_has_no_namespace_does_not_act_until_it_is_there(world: World) -> None:
    lost = Member(world, "lost", "nope")
    assert await world.never_two(60) == set()
    assert not lost.elector.unusable
    assert [str(error) for error in lost.refusals] == ['namespaces "nope" not found']
    world.api.store.create("namespaces", namespace("nope"))
    assert await world.never_two(60) == {"lost"}


@with_world
async def test_a_look_costs_one_list_in_a_minute(world: World) -> None:
    member = Member(world, "first", "a")
    await asyncio.sleep(5)
    before = member.client.stats.total("list", str(LEASES))
    await asyncio.sleep(600)
    assert member.client.stats.total("list", str(LEASES)) - before <= 600 / LOOK_AGAIN
    assert world.api.store.get(str(LEASES), "a", names.LEADER_LEASE)["spec"]["holderIdentity"] == "first_1f"


def of_a_tenant(seconds: int, renewed: str = "2020-01-01T00:00:00.000000Z") -> dict[str, Any]:
    """Return a Lease as anybody may write it who may edit a namespace."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": names.LEADER_LEASE, "namespace": "b"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": seconds, "renewTime": renewed}}


@with_world
async def test_one_that_acts_does_not_stop_for_a_lease_that_nobody_renews(world: World) -> None:
    member = Member(world, "first", "a")
    await asyncio.sleep(5)
    world.api.store.create(str(LEASES), of_a_tenant(2**31 - 1))
    for _ in range(300):
        await asyncio.sleep(1)
        assert world.acting == ["first"]
    assert member.blockers == []


@with_world
async def test_one_that_begins_waits_a_minute_at_most_for_a_lease_that_nobody_renews(world: World) -> None:
    world.api.store.create(str(LEASES), of_a_tenant(2**31 - 1))
    Member(world, "first", "a")
    assert await world.never_two(UNRENEWED - 1) == set()
    assert await world.never_two(4) == {"first"}
