"""Two operators that both believe to lead: what one was granted counts for the other, so the limits hold for both together."""

from __future__ import annotations

import asyncio

import pytest

from gpuward import errors, names
from gpuward.cli.story import IMAGES
from gpuward.controllers.operator import Operator, Settings
from gpuward.kube.client import Client
from gpuward.kube.election import Candidate
from gpuward.kube.lease import new_lease
from gpuward.kube.resources import LEASES
from gpuward.model.states import State
from gpuward.sandbox.transport import InProcessTransport
from tests.journeys.stage import NEW, Stage, on_stage

TWO_AT_ONCE = {"maxUnavailable": "100%", "maxParallelUpgrades": 2}


def operator(stage: Stage, identity: str, transport: InProcessTransport | None = None) -> Operator:
    """Return an operator that never doubts that it leads."""
    settings = Settings(names.DEFAULT_NAMESPACE, IMAGES, seed=0)
    candidate = Candidate(identity, names.DEFAULT_NAMESPACE)
    return Operator(Client(transport or stage.sandbox.transport()), settings, stage.clock, candidate=candidate)


async def take_lease(stage: Stage, identity: str) -> None:
    try:
        lease = (await stage.user.get(LEASES, names.LEADER_LEASE, names.DEFAULT_NAMESPACE)).object()
    except errors.NotFound:
        lease = (await stage.user.create(LEASES, new_lease(names.DEFAULT_NAMESPACE))).object()
    await stage.user.replace(LEASES, {**lease, "spec": {**(lease.get("spec") or {}), "holderIdentity": identity}})


async def first_leads(stage: Stage) -> None:
    """Put an operator that stands for election in the place of the stage's."""
    await stage.kill_operator()
    await take_lease(stage, "first")
    stage.operator = operator(stage, "first", stage.transport)
    stage.begin_operator()


@pytest.mark.weakness(35)
@pytest.mark.parametrize("after", [0.5, 3.0, 4.5, 6.0, 8.5, 11.5, 13.0])
def test_an_old_leader_whose_writes_come_late_and_a_new_one_stay_within_the_limit(after: float) -> None:
    """Every request of the old leader takes 8 s; meanwhile the node that it chose is to be skipped, so another goes first."""
    async def play(stage: Stage) -> None:
        await first_leads(stage)
        await stage.installed()
        stage.watch_limits()
        await stage.upgrade_to(NEW)
        await stage.until(lambda: stage.state("gpu-1") == stage.state("gpu-2") == State.POD_RESTART_REQUIRED)
        stage.transport.latency = 8.0
        await stage.until(lambda: State.DONE in (stage.state("gpu-1"), stage.state("gpu-2")))
        await asyncio.sleep(after)
        await take_lease(stage, "second")
        await stage.label("gpu-3", names.UPGRADE_SKIP, "true")
        work = asyncio.create_task(operator(stage, "second").run())
        await stage.rest(120)
        await stage.label("gpu-3", names.UPGRADE_SKIP, None)
        await stage.upgraded()
        work.cancel()
        assert stage.most_in_progress == 2
        assert stage.cordons() == []

    on_stage(6, upgrade=TWO_AT_ONCE)(play)()


@on_stage(gpu_nodes=4, upgrade=TWO_AT_ONCE)
async def test_who_has_lost_the_lease_starts_nothing(stage: Stage) -> None:
    await first_leads(stage)
    await stage.installed()
    await take_lease(stage, "somebody else")
    stage.watch_limits()
    await stage.upgrade_to(NEW)
    await stage.rest(300)
    assert stage.most_in_progress == 0
    assert "upgrade-required" in stage.states().values()
    await take_lease(stage, "first")
    await stage.upgraded()


@on_stage(gpu_nodes=6, upgrade={"maxUnavailable": "100%", "maxParallelUpgrades": 0})
async def test_the_ledger_costs_one_write_for_all_that_start_together(stage: Stage) -> None:
    await first_leads(stage)
    await stage.installed()
    before = stage.operator.cluster.client.stats.total("patch", "leases.coordination.k8s.io")
    await stage.upgrade_to(NEW)
    await stage.upgraded()
    await stage.rest(10)
    assert stage.operator.cluster.client.stats.total("patch", "leases.coordination.k8s.io") - before <= 3
    lease = stage.get("leases.coordination.k8s.io", names.LEADER_LEASE)
    assert lease["metadata"]["annotations"][names.ADMISSIONS] == "{}"


@on_stage(gpu_nodes=2)
async def test_who_begins_to_lead_lists_everything_anew_before_it_decides(stage: Stage) -> None:
    await first_leads(stage)
    await stage.installed()
    ledger, stats = stage.operator.ledger, stage.operator.cluster.client.stats
    assert ledger is not None
    before = stats.total("list", "nodes")
    ledger.forget()
    assert not ledger.known
    await stage.rest(5)
    assert ledger.known
    assert stats.total("list", "nodes") == before + 1
