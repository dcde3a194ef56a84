"""Two operators side by side, neither of which was told of the other: one acts, and the other one says for whom it waits."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from gpuward import names
from gpuward.cli.candidacy import Candidacy
from gpuward.cli.leader import find_leader
from gpuward.controllers.operator import Operator, Settings
from gpuward.errors import Forbidden, Unreachable
from gpuward.kube.http.client import Client
from gpuward.kube.lease.election import Candidate, ElectionListeners, Elector
from gpuward.kube.resources import LEASES
from gpuward.model.states import State
from gpuward.sandbox.samples import IMAGES
from kubesandbox.builders import namespace
from kubesandbox.messages import Answer, Request, Stream, refusal
from tests.journeys.stage import NEW, Stage, on_stage

WAITS = "Another operator runs: waiting until it is gone"
UNKNOWN = "The Lease cannot be used, so it is not known whether another operator runs: acting without it"


class Process:
    """Be an operator as `gpuward run` without --leader-elect puts it together, but on one event loop."""

    def __init__(self, stage: Stage, name: str, place: str = names.DEFAULT_NAMESPACE, *, may_use_leases: bool = True) -> None:
        loop = asyncio.get_running_loop()
        transport, lease = stage.sandbox.transport(), stage.sandbox.transport()
        self.client = Client(transport)
        if not may_use_leases:
            lease.interfere = forbidden
        candidate = Candidate(f"{name}_1f", place, looks_around=True)
        self.standing = Candidacy(self.client, candidate, lambda: self.operator.turned(), elects=False)
        self.elector = Elector(
            Client(lease), candidate, random=Random(name), wall=stage.clock.now, changed=self.standing.changed,
            told=ElectionListeners(blocked=self.standing.blocked, refused=self.standing.refused))
        self.standing.failure = lambda: self.elector.failure
        self.lease = lease
        self.operator = Operator(
            self.client, Settings(place, IMAGES, seed=0), stage.clock,
            lambda: self.elector.valid(loop.time()) or self.elector.unusable)
        self.work = [asyncio.create_task(self.elector.run()), asyncio.create_task(self.operator.run())]

    @property
    def writes(self) -> int:
        """Return how often it wrote to the cluster, its Lease aside."""
        return self.client.stats.writes()

    async def stop(self) -> None:
        """End it as a signal does: first what writes, then the Lease."""
        for task in reversed(self.work):
            task.cancel()
            await asyncio.wait([task])


def forbidden(request: Request, proceed: Any) -> Answer | Stream:
    """Refuse everything."""
    return refusal(Forbidden(f"{request.path} is forbidden"))


async def alone(stage: Stage) -> Process:
    """Put an operator that holds the Lease in the place of the stage's, and install."""
    await stage.kill_operator()
    process = Process(stage, "first")
    stage.operator = process.operator
    await stage.installed()
    return process


@on_stage(gpu_nodes=3, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 1})
async def test_the_second_one_waits_and_then_finishes_what_the_first_had_begun(stage: Stage) -> None:
    first = await alone(stage)
    second = Process(stage, "second")
    await stage.upgrade_to(NEW)
    await stage.until(lambda: stage.state("gpu-1") == State.POD_RESTART_REQUIRED)
    assert second.writes == 0
    (told,) = stage.warnings(WAITS)
    assert (told["holder"], told["lease"]) == ("first_1f", f"gpu-operator/{names.LEADER_LEASE}")
    assert told["since"] == stage.get(str(LEASES), names.LEADER_LEASE)["spec"]["acquireTime"]
    assert "stop one of the two" in told["fix"]
    await first.stop()
    stage.operator = second.operator
    await stage.upgraded()
    assert stage.most_in_progress == 1
    assert stage.cordons() == []
    await second.stop()


@on_stage(gpu_nodes=2)
async def test_one_that_lives_in_another_namespace_makes_nothing_there(stage: Stage) -> None:
    first = await alone(stage)
    stage.sandbox.apply(namespace("other"))
    second = Process(stage, "second", "other")
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    assert second.writes == 0
    assert stage.sandbox.store.list("daemonsets.apps", "other") == []
    (told,) = stage.warnings(WAITS)
    assert (told["holder"], told["lease"]) == ("first_1f", f"gpu-operator/{names.LEADER_LEASE}")
    await first.stop()
    await second.stop()


@on_stage(gpu_nodes=2)
async def test_without_rights_to_leases_the_operator_acts_and_says_what_it_does_not_know(stage: Stage) -> None:
    await stage.kill_operator()
    process = Process(stage, "first", may_use_leases=False)
    stage.operator = process.operator
    await stage.installed()
    (told,) = stage.warnings(UNKNOWN)
    assert "forbidden" in told["error"]
    await process.stop()


@pytest.mark.parametrize("begins", [False, True])
def test_a_lease_that_a_tenant_wrote_once_stops_no_upgrade(begins: bool) -> None:
    @on_stage(gpu_nodes=3)
    async def story(stage: Stage) -> None:
        process = await alone(stage)
        stage.sandbox.apply(namespace("tenant"))
        stage.sandbox.apply({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": names.LEADER_LEASE, "namespace": "tenant"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 2**31 - 1, "renewTime": "2020-01-01T00:00:00.000000Z"}})
        if begins:
            await process.stop()
            process = Process(stage, "again")
            stage.operator = process.operator
        await stage.rest(90)
        await stage.upgrade_to(NEW)
        await stage.upgraded()
        assert stage.drivers() == [NEW]
        await process.stop()

    story()


@on_stage(gpu_nodes=1)
async def test_a_lease_that_a_stranger_wrote_to_last_for_ever_holds_the_operator_for_ten_minutes(stage: Stage) -> None:
    process = await alone(stage)
    await process.stop()
    lease = stage.get(str(LEASES), names.LEADER_LEASE)
    spec = {"holderIdentity": "stranger", "leaseDurationSeconds": 2**31 - 1, "renewTime": "2099-01-01T00:00:00.000000Z"}
    stage.sandbox.apply({**lease, "spec": spec})
    again = Process(stage, "again")
    stage.operator = again.operator
    await stage.upgrade_to(NEW)
    await stage.rest(60)
    (told,) = stage.warnings(WAITS)
    assert (told["holder"], told["lease"]) == ("stranger", f"gpu-operator/{names.LEADER_LEASE}")
    assert told["counts_unrenewed_for"] == "600s"
    seen = await find_leader(stage.user, names.DEFAULT_NAMESPACE, stage.clock)
    assert (seen.running, "stranger" in seen.message) == (False, True)
    await stage.upgraded(within=1200)
    await again.stop()


@on_stage(gpu_nodes=1)
async def test_the_log_says_why_the_lease_is_lost(stage: Stage) -> None:
    one = Process(stage, "one")
    await stage.until(lambda: any(line["msg"] == "Leading" for line in stage.log), within=60)

    def silence(request: Request, proceed: Any) -> Answer | Stream:
        raise Unreachable("no answer in time")

    one.lease.interfere = silence
    await stage.until(lambda: bool(stage.warnings("No longer leading: the Lease could not be renewed in time")), within=60)
    assert "no answer" in stage.warnings("No longer leading")[0]["error"]
    await one.stop()
