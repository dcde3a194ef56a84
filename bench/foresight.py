"""Measure `gpuward plan` on large clusters, and `gpuward rehearse` with all that the sandbox plays.

    uv run python -m bench.foresight [--nodes 10000] [--pods 10]

The fleet is that of bench.scale: copies of one node with its installed stack, served over HTTP from a process of its own. A process
of its own lists it, makes the plan for another driver and prints it as JSON. Seconds are real ones, with the server on the same
machine; the peak is of the process that plans.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec
from tests.journeys.stage import NEW

from bench.scale import serve
from gpuward import names
from gpuward.cli.connect import connected
from gpuward.cli.foresight import Wanted, foresee
from gpuward.cli.plan import as_json
from gpuward.cli.terminal import as_json as as_text


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


def plan(nodes: int, pods: int) -> Planned:
    """Measure one fleet."""
    spawn = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="gpuward-foresight-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        here, there = spawn.Pipe()
        server = spawn.Process(target=serve, args=(nodes, pods, kubeconfig, there), daemon=True)
        server.start()
        here.recv()
        mine, theirs = spawn.Pipe()
        planner = spawn.Process(target=measure, args=(nodes, pods, kubeconfig, theirs), daemon=True)
        planner.start()
        there.close()
        theirs.close()
        found = msgspec.json.decode(mine.recv_bytes(), type=Planned)
        server.terminate()
        return found


@click.command()
@click.option("--nodes", multiple=True, type=int, default=(1000, 10000), show_default=True, help="Sizes of fleets.")
@click.option("--pods", default=10, show_default=True, help="Pods on each node.")
def main(nodes: tuple[int, ...], pods: int) -> None:
    """Measure plans of large clusters."""
    click.echo(f"{'nodes':>6} {'pods':>7} {'seconds':>8} {'CPU s':>6} {'peak MB':>8} {'JSON MB':>8}")
    for count in nodes:
        one = plan(count, pods)
        click.echo(f"{one.nodes:>6} {one.pods:>7} {one.seconds:>8.1f} {one.cpu:>6.1f} {one.peak_mb:>8.0f} {one.written_mb:>8.1f}")


if __name__ == "__main__":
    main()
