"""Measure `gpuward plan` on large clusters, and `gpuward rehearse`.

    uv run python -m bench.foresight [--nodes 10000] [--pods 10] [--rehearse 1000] [--parallel 20]

The fleet is that of bench.scale: copies of one node with its installed stack. For the plan it is served over HTTP by a process;
another one lists it, makes the plan for another driver and prints it as JSON. Seconds are real ones, with the server on the same
machine; the peak is of the process that plans. A rehearsal is of a capture of such a fleet, with 30 pods on each node, two of
them with a GPU, which go to other nodes when they are evicted.
"""

from __future__ import annotations

import asyncio
import resource
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import msgspec
from tests.journeys.stage import NEW

from bench.scale import WORK, copy_node, installed, measured_apart
from gpuward import names
from gpuward.cli.capture import captured
from gpuward.cli.connect import connected
from gpuward.cli.foresight import Wanted, foresee
from gpuward.cli.plan import as_json
from gpuward.cli.terminal import as_json as as_text
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.kube.http.listing import ListingTransport
from gpuward.rehearse.assumptions import Assumptions
from gpuward.rehearse.captured import Captured
from gpuward.rehearse.loading import Loaded, loaded
from gpuward.rehearse.playing import Play
from gpuward.sandbox.cluster import Sandbox
from kubesandbox.timeloop import run_virtual


class Planned(msgspec.Struct, frozen=True):
    """Hold what one plan took: seconds, CPU seconds, and megabytes of its process at its largest."""

    nodes: int
    pods: int
    seconds: float
    cpu: float
    peak_mb: float
    written_mb: float
    """Of the JSON that it printed."""


def measure(nodes: int, pods: int, kubeconfig: Path, result: Connection) -> None:
    """Plan, and send a Planned."""
    result.send_bytes(msgspec.json.encode(asyncio.run(_measure(nodes, pods, kubeconfig))))


async def _measure(nodes: int, pods: int, kubeconfig: Path) -> Planned:
    begun, used = time.perf_counter(), time.process_time()
    async with connected(str(kubeconfig), None, lists_only=True) as (client, _):
        found = await foresee(client, Wanted(version=NEW), names.DEFAULT_NAMESPACE)
    text = as_text(as_json(found))
    assert len(found.nodes) == nodes, f"the plan is about {len(found.nodes)} of {nodes} nodes"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return Planned(nodes, nodes * pods, time.perf_counter() - begun, time.process_time() - used, peak, len(text) / 1e6)


class Rehearsed(msgspec.Struct, frozen=True):
    """Hold what one rehearsal took: seconds to load the capture, to play it once, and megabytes of its process at its largest."""

    nodes: int
    pods: int
    loading: float
    played: float
    cpu: float
    peak_mb: float
    virtual_hours: float
    done: int


def rehearse(nodes: int, pods: int, parallel: int) -> Rehearsed:
    """Measure one rehearsal, in this process."""
    found = run_virtual(lambda: _captured_fleet(nodes, pods, parallel))
    begun, used, assumed = time.perf_counter(), time.process_time(), Assumptions()

    async def load() -> Loaded:
        return await loaded(found, assumed, _ask)

    play = Play(found.manifest, run_virtual(load, start=found.manifest.at), _ask, assumed)
    loading = time.perf_counter() - begun
    run = play.run(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return Rehearsed(nodes, nodes * pods, loading, run.took, time.process_time() - used, peak, run.lasted / 3600,
                     sum(node.done is not None for node in run.nodes))


def _ask(sandbox: Sandbox) -> None:
    for policy in sandbox.store.list(str(resources.CLUSTER_POLICIES)):
        sandbox.store.modify(str(resources.CLUSTER_POLICIES), None, policy["metadata"]["name"],
                             lambda obj: obj["spec"]["driver"].update(version=NEW))


async def _captured_fleet(nodes: int, pods: int, parallel: int) -> Captured:
    stage = await installed(1, maxParallelUpgrades=parallel, maxUnavailable="100%")
    await stage.stop()
    copy_node(stage, nodes, pods)
    for number, pod in enumerate(stage.sandbox.store.list("pods", WORK)):
        owner = {"apiVersion": "example.com/v1", "kind": "Training", "name": f"training-{number // 20}", "controller": True,
                 "uid": f"training-{number // 20}"}
        stage.sandbox.store.modify("pods", WORK, pod["metadata"]["name"], partial(_own, owner))
    return await captured(Client(ListingTransport(stage.sandbox.transport())), names.DEFAULT_NAMESPACE)


def _own(owner: dict[str, Any], pod: dict[str, Any]) -> None:
    pod["metadata"]["ownerReferences"] = [owner]


@click.command()
@click.option("--nodes", multiple=True, type=int, default=(1000, 10000), show_default=True, help="Sizes of fleets.")
@click.option("--pods", default=10, show_default=True, help="Pods on each node.")
@click.option("--rehearse", "rehearsed", default=0, show_default=True, help="Nodes of the rehearsal; 0 for none.")
@click.option("--parallel", default=20, show_default=True, help="Nodes that the rehearsal upgrades at once.")
def main(nodes: tuple[int, ...], pods: int, rehearsed: int, parallel: int) -> None:
    """Measure plans and rehearsals of large clusters."""
    if rehearsed:
        told = rehearse(rehearsed, 30, parallel)
        click.echo(f"rehearsal of {told.nodes} nodes with {told.pods} pods, {parallel} at once: loaded in {told.loading:.0f} s, "
                   f"played in {told.played:.0f} s, {told.cpu:.0f} CPU s, {told.peak_mb:.0f} MB; {told.done} nodes done in "
                   f"{told.virtual_hours:.1f} h")
        return
    click.echo(f"{'nodes':>6} {'pods':>7} {'seconds':>8} {'CPU s':>6} {'peak MB':>8} {'JSON MB':>8}")
    for count in nodes:
        one = measured_apart(count, pods, measure, Planned)
        click.echo(f"{one.nodes:>6} {one.pods:>7} {one.seconds:>8.1f} {one.cpu:>6.1f} {one.peak_mb:>8.0f} {one.written_mb:>8.1f}")


if __name__ == "__main__":
    main()
