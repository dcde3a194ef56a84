"""The ledger on the Lease: only who leads changes it, and who begins to lead knows what the one before was granted."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from gpuward import errors, names
from gpuward.kube.cluster import Cluster
from gpuward.kube.lease.election import Candidate
from gpuward.kube.lease.ledger import LATE, LeaseLedger
from gpuward.kube.lease.rules import new_lease
from gpuward.kube.resources import LEASES
from tests.kube.test_on_sandbox import Scene, with_scene


async def leader(scene: Scene, identity: str) -> tuple[Cluster, LeaseLedger]:
    """Let somebody take the Lease, and read the ledger as the one who leads."""
    try:
        lease = (await scene.client.get(LEASES, names.LEADER_LEASE, "default")).object()
    except errors.NotFound:
        lease = (await scene.client.create(LEASES, new_lease("default"))).object()
    await scene.client.replace(LEASES, {**lease, "spec": {**(lease.get("spec") or {}), "holderIdentity": identity}})
    cluster = Cluster(scene.client, "default", random=Random(1))
    ledger = LeaseLedger(scene.client, cluster, Candidate(identity, "default"))
    task = asyncio.create_task(ledger.run(lambda: True))
    await asyncio.sleep(5)
    assert ledger.known
    task.cancel()
    return cluster, ledger


@with_scene
async def test_the_next_leader_knows_what_the_last_one_was_granted(scene: Scene) -> None:
    _, first = await leader(scene, "a")
    await first.change({"gpu-1": "s1", "gpu-2": "s2"}, ())
    await first.change({"gpu-3": "s3"}, ["gpu-1"])
    cluster, second = await leader(scene, "b")
    assert cluster.observe().grants == {"gpu-2": "s2", "gpu-3": "s3"}
    await second.change({}, ["gpu-2", "gpu-3"])
    assert cluster.observe().grants == {}


@with_scene
async def test_who_does_not_lead_any_more_grants_nothing(scene: Scene) -> None:
    _, old = await leader(scene, "a")
    cluster, _ = await leader(scene, "b")
    with pytest.raises(errors.Conflict):
        await old.change({"gpu-1": "s1"}, ())
    assert not old.known
    assert cluster.observe().grants == {}


@with_scene
async def test_a_renewal_and_a_grant_do_not_get_in_each_others_way(scene: Scene) -> None:
    cluster, ledger = await leader(scene, "a")
    await ledger.change({"gpu-1": "s1"}, ())
    lease = (await scene.client.get(LEASES, names.LEADER_LEASE, "default")).object()
    await scene.client.replace(LEASES, {**lease, "spec": {**lease["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}})
    await ledger.change({"gpu-2": "s2"}, ())
    assert cluster.observe().grants == {"gpu-1": "s1", "gpu-2": "s2"}


@with_scene
async def test_who_waits_for_the_lease_reads_nothing(scene: Scene) -> None:
    await leader(scene, "a")
    cluster = Cluster(scene.client, "default", random=Random(1))
    ledger = LeaseLedger(scene.client, cluster, Candidate("b", "default"))
    task = asyncio.create_task(ledger.run(lambda: True))
    await asyncio.sleep(30)
    task.cancel()
    assert not ledger.known
    assert cluster.observe().grants is None


@with_scene
async def test_what_was_asked_for_long_ago_counts_as_an_earlier_leaders(scene: Scene) -> None:
    cluster, ledger = await leader(scene, "a")
    await ledger.change({"gpu-1": "s1"}, ())
    assert cluster.observe().inherited == frozenset()
    scene.transport.latency = LATE + 1.0
    await ledger.change({"gpu-2": "s2"}, ["gpu-1"])
    assert cluster.observe().inherited == {"gpu-2"}


@with_scene
async def test_garbage_in_the_annotation_grants_nothing_and_is_written_over(scene: Scene) -> None:
    lease = new_lease("default")
    await scene.client.create(LEASES, {**lease, "metadata": {**lease["metadata"], "annotations": {names.ADMISSIONS: "{"}}})
    cluster, ledger = await leader(scene, "a")
    assert cluster.observe().grants == {}
    await ledger.change({"gpu-1": "s1"}, ())
    assert cluster.observe().grants == {"gpu-1": "s1"}


@with_scene
async def test_a_stop_in_the_moment_in_which_leading_ends_is_not_lost(scene: Scene) -> None:
    for turns in range(5):
        ledger = LeaseLedger(scene.client, Cluster(scene.client, "default", random=Random(1)), Candidate("a", "default"))
        task = asyncio.create_task(ledger.run(lambda: False))
        await asyncio.sleep(0.5)
        ledger.forget()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled(), turns
