"""Two operators that both believe to lead: what one was granted counts for the other, so the limits hold for both together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from gpuward import errors, names
from gpuward.controllers.metricnames import OWN, OWN_PREFIX
from gpuward.controllers.operator import Operator
from gpuward.kube.http.client import Client
from gpuward.kube.lease.rules import new_lease
from gpuward.kube.resources import LEASES
from gpuward.model.states import State
from gpuward.sandbox.transport import InProcessTransport
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.stage import NEW, OLD, Stage, on_stage
from tests.journeys.test_node_workload import torn

TWO_AT_ONCE = {"maxUnavailable": "100%", "maxParallelUpgrades": 2}


def operator(stage: Stage, identity: str, transport: InProcessTransport | None = None) -> Operator:
    """Return an operator that never doubts that it leads."""
    return stage.new_operator(Client(transport or stage.sandbox.transport()), identity=identity)


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


def dies_between(stage: Stage) -> list[str]:
    """Let the stage's operator reach nothing any more once it has entered a node in the ledger; return what it entered."""
    granted: list[str] = []

    def interfere(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        if granted:
            raise errors.Unreachable("the process is dead")
        response = proceed()
        if request.method in ("PATCH", "PUT") and "/leases/" in request.path:
            lease = stage.get("leases.coordination.k8s.io", names.LEADER_LEASE)
            granted.extend(json.loads((lease["metadata"].get("annotations") or {}).get(names.ADMISSIONS, "{}")))
        return response

    stage.transport.interfere = interfere
    return granted


async def _none_may_be_unavailable(stage: Stage, node: str) -> None:
    await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 0)


async def _another_is_cordoned(stage: Stage, node: str) -> None:
    await stage.cordon(next(name for name in sorted(stage.states()) if name != node))


async def _a_budget_protects(stage: Stage, node: str) -> None:
    stage.set_budget(f"training-{node}", 0)


@pytest.mark.parametrize("change", [_none_may_be_unavailable, _another_is_cordoned, _a_budget_protects])
def test_what_a_leader_was_granted_that_died_passes_the_gates_anew(change: Callable[[Stage, str], Awaitable[None]]) -> None:
    """The node waits in the ledger until another leader comes, to which the cluster looks different."""
    @on_stage(3, upgrade={"maxUnavailable": 1, "maxParallelUpgrades": 1})
    async def scenario(stage: Stage) -> None:
        await first_leads(stage)
        await stage.installed()
        for name in stage.states():
            await stage.deploy(f"training-{name}", node=name, max_unavailable=1)
        granted = dies_between(stage)
        await stage.upgrade_to(NEW)
        await stage.until(lambda: granted)
        await stage.kill_operator()
        stage.transport.interfere = lambda request, proceed: proceed()
        node, = granted
        await change(stage, node)
        cordons = stage.cordons()
        await stage.rest(600)
        await take_lease(stage, "second")
        stage.operator = operator(stage, "second", stage.transport)
        stage.begin_operator()
        await stage.rest(300)
        assert (stage.state(node), stage.driver(node), stage.cordoned(node)) == (State.UPGRADE_REQUIRED, OLD, False)
        assert torn(stage) == []
        stage.set_budget(f"training-{node}", 1)
        for name in cordons:
            await stage.cordon(name, wanted=False)
        await stage.patch_policy("driver/upgradePolicy/maxUnavailable", 1)
        await stage.upgraded()

    scenario()


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


OF_THE_PROCESS = tuple(OWN_PREFIX + name for name in OWN)


def fleet_metrics(operator: Operator) -> dict[str, float]:
    """Return what an operator tells of the fleet: NVIDIA's gauges and ours, without those of the process and its counters."""
    lines = [line.rsplit(" ", 1) for line in operator.metrics.text().decode().splitlines() if not line.startswith("#")]
    told = {name: float(value) for name, value in lines if not name.startswith(OF_THE_PROCESS)}
    return {name: value for name, value in told.items()
            if (name.startswith(("gpu_operator_", "gpuward_")) and not name.endswith("_total")) or "gpu_nodes" in name}


@on_stage(gpu_nodes=3)
async def test_only_who_leads_tells_of_the_fleet(stage: Stage) -> None:
    """A former leader's last figures would be scraped for ever, beside those of the one that leads."""
    leads = {"first": True, "second": False}
    first = stage.new_operator(leads=lambda: leads["first"])
    second = stage.new_operator(Client(stage.sandbox.transport()), leads=lambda: leads["second"])
    await stage.restart_operator(first)
    work = asyncio.create_task(second.run())
    await stage.installed()
    await stage.upgrade_to(NEW)
    await stage.until(lambda: fleet_metrics(first).get("gpu_operator_nodes_upgrades_in_progress") == 1.0)
    assert fleet_metrics(second) == {}
    leads |= {"first": False, "second": True}
    assert fleet_metrics(first) == {}
    assert b"process_cpu_seconds_total" in first.metrics.text()
    assert b"gpu_operator_reconciliation_total" in first.metrics.text()
    assert [b"\ngpuward_leader 0.0\n" in one.metrics.text() for one in (first, second)] == [True, False]
    await stage.upgraded()
    await stage.rest(60)
    assert fleet_metrics(first) == {}
    assert fleet_metrics(second)["gpu_operator_nodes_upgrades_done"] == 3.0
    assert fleet_metrics(second)["gpu_operator_gpu_nodes_total"] == 3.0
    assert fleet_metrics(second)['gpuward_nodes_by_group{group="up to date"}'] == 3.0
    work.cancel()


@on_stage(gpu_nodes=2)
async def test_who_leads_again_tells_nothing_of_its_earlier_time(stage: Stage) -> None:
    await first_leads(stage)
    await stage.installed()
    await stage.rest(60)
    assert fleet_metrics(stage.operator)["gpu_operator_reconciliation_status"] == 1.0
    await take_lease(stage, "somebody else")
    stage.operator.turned()
    await stage.rest(5)
    assert fleet_metrics(stage.operator) == {}
    await take_lease(stage, "first")
    stage.operator.turned()
    await stage.rest(60)
    assert fleet_metrics(stage.operator)["gpu_operator_reconciliation_status"] == 1.0


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
