"""Measure rollouts on a real control plane, each beside its floor in the same run.

    python -m bench.rollout                         the cases of the table in docs/benchmarks.md
    python -m bench.rollout --case 50:5:0:0         nodes : in parallel (0: no limit) : driver seconds : validator seconds
    python -m bench.rollout --case 500:1:20:5:20    the same, ended when 20 nodes are done: all 500 would take 3.5 hours, twice

Requests are counted from the API server's audit log, CPU seconds and peak memory of the operator from /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from tests.controlplane.plane import OPERATOR, WRITES, Plane
from tools.controlplane import lent

from bench.floor import Floor, closing
from gpuward import errors, names
from gpuward.kube import resources
from gpuward.kube.cache.projection import read_head
from gpuward.kube.config.loading import find_access
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client, Selection
from gpuward.wire.nodes import node_view

CASES = ("50:0:0:0", "50:10:0:0", "50:5:0:0", "50:1:0:0", "1:1:0:0", "50:10:20:5", "500:0:0:0")
INSTALLED_WITHIN = 1200.0
"""Seconds in which the stack is installed on a busy machine."""
TICKS = os.sysconf("SC_CLK_TCK")


class BenchCase(msgspec.Struct, frozen=True):
    """Hold what is measured."""

    nodes: int
    parallel: int
    driver_seconds: float
    validator_seconds: float
    first: int = 0
    """How many upgraded nodes are waited for (0: all)."""

    @property
    def measured(self) -> int:
        """Return the number of nodes whose upgrade is measured."""
        return self.first or self.nodes

    @classmethod
    def parse(cls, text: str) -> BenchCase:
        """Read a case as the command line has it."""
        try:
            nodes, parallel, driver, validator, *first = text.split(":")
            return cls(int(nodes), int(parallel), float(driver), float(validator), *map(int, first))
        except (ValueError, TypeError):
            fix = "write nodes:parallel:driver-seconds:validator-seconds[:nodes to wait for], such as 50:5:0:0"
            raise click.BadParameter(f"{text!r}: {fix}") from None


class BenchResult(msgspec.Struct, frozen=True):
    """Hold what was measured."""

    case: BenchCase
    seconds: float
    floor_seconds: float
    requests: dict[str, int]
    cpu_seconds: float
    peak_mb: float
    most_cordoned: int

    @property
    def ratio(self) -> float:
        """Return how many times the floor the rollout took."""
        return self.seconds / self.floor_seconds

    def count(self, *verbs: str, resource: str = "") -> float:
        """Return the number of requests per node with one of these verbs, on a resource (all of them)."""
        found = sum(
            number for key, number in self.requests.items()
            if key.split()[0] in verbs and resource in ("", key.split()[1])
        )
        return found / self.case.nodes


class Usage:
    """Read what a process uses from /proc."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak_mb(self) -> float:
        """Return the largest resident size so far, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1000


class BenchFleet:
    """Follow the nodes and tell when a rollout has ended."""

    def __init__(self, client: Client, nodes: int) -> None:
        self._client = client
        self._nodes = nodes
        self.most_cordoned = 0

    async def upgraded(self, ready: asyncio.Event) -> float:
        """Return the loop's time at which the last node was done, having been in another state before."""
        begun: set[str] = set()
        done: set[str] = set()
        cordoned: set[str] = set()
        version = ""
        async for page in self._client.pages(Selection(resources.NODES)):
            version = page.version
        ready.set()
        while len(done) < self._nodes:
            # A server with too much to do ends watches that fall behind; they go on from where they were.
            with contextlib.suppress(errors.Unreachable):
                async for event in self._client.watch(Selection(resources.NODES), version, server_seconds=3600, idle_seconds=900):
                    version = read_head(bytes(event.object)).metadata.resource_version
                    if event.type != "MODIFIED":
                        continue
                    node = node_view(event.object)
                    (cordoned.add if node.unschedulable else cordoned.discard)(node.name)
                    self.most_cordoned = max(self.most_cordoned, len(cordoned))
                    if node.upgrade_label == "upgrade-done" and node.name in begun:
                        done.add(node.name)
                    elif node.upgrade_label not in ("", "upgrade-done"):
                        begun.add(node.name)
                    if len(done) >= self._nodes:
                        break
            if len(done) < self._nodes:
                await asyncio.sleep(0.1)
        return asyncio.get_running_loop().time()


def measure(case: BenchCase) -> BenchResult:
    """Start a control plane, roll a driver out with the operator and again with the floor's client, and stop it."""
    with tempfile.TemporaryDirectory(prefix="gpuward-bench-") as folder:
        state = Path(folder) / "run"
        options = ("--nodes", str(case.nodes), "--driver-seconds", str(case.driver_seconds),
                   "--validator-seconds", str(case.validator_seconds))
        with lent.running(state, *options):
            return _measure(Plane(state), case)


def _measure(plane: Plane, case: BenchCase) -> BenchResult:
    plane.furnish(with_workloads=False)
    limits = {"maxParallelUpgrades": case.parallel, "maxUnavailable": "100%"}
    plane.change_policy(upgradePolicy=limits)
    with plane.operator() as process:
        plane.policy_ready(INSTALLED_WITHIN)
        asyncio.run(_all_done(plane, case.nodes))
        usage = Usage(process.pid)
        cpu = usage.cpu_seconds()
        with plane.audited() as asked:
            seconds, cordoned = asyncio.run(_roll_out(plane, case))
        cpu = usage.cpu_seconds() - cpu
        peak = usage.peak_mb()
    click.echo(f"{case.measured} of {case.nodes} nodes upgraded in {seconds:.1f} s, {cpu:.1f} CPU s and {peak:.0f} MB at most; "
               "the floor follows", err=True)
    change = {"spec": {"template": {"metadata": {"annotations": {"bench": "floor"}}}}}
    plane.kubectl("patch", "daemonset", names.DRIVER_APP, "-n", names.DEFAULT_NAMESPACE, "--type=merge", "-p", json.dumps(change))
    floor = asyncio.run(_floor(plane, case))
    return BenchResult(case, seconds, floor, _counted(asked), cpu, peak, cordoned)


def _client(plane: Plane) -> Client:
    return Client(AiohttpTransport(find_access(str(plane.kubeconfig))))


async def _all_done(plane: Plane, nodes: int) -> None:
    async with closing(_client(plane)) as client:
        while True:
            views = [node_view(raw) async for raw in client.list(Selection(resources.NODES))]
            if sum(view.upgrade_label == "upgrade-done" for view in views) == nodes:
                return
            await asyncio.sleep(1.0)


async def _roll_out(plane: Plane, case: BenchCase) -> tuple[float, int]:
    async with closing(_client(plane)) as client:
        fleet = BenchFleet(client, case.measured)
        ready = asyncio.Event()
        ended = asyncio.create_task(fleet.upgraded(ready))
        await ready.wait()
        begun = asyncio.get_running_loop().time()
        version = [{"op": "replace", "path": "/spec/driver/version", "value": "999.1"}]
        await client.patch_json(resources.CLUSTER_POLICIES, "cluster-policy", version)
        return await ended - begun, fleet.most_cordoned


async def _floor(plane: Plane, case: BenchCase) -> float:
    async with closing(_client(plane)) as client:
        views = [node_view(raw) async for raw in client.list(Selection(resources.NODES))]
        gpu_nodes = sorted(view.name for view in views if view.gpu_present)
        whole = {view.name for view in views if view.upgrade_label in ("upgrade-done", "upgrade-required")}
        measured = [name for name in gpu_nodes if name in whole or not case.first][:case.measured]
        return await Floor(client, gpu_nodes, measured, case.parallel).run()


def _counted(asked: list[dict[str, Any]]) -> dict[str, int]:
    """Count the operator's requests by verb and resource; watches that last are not counted as requests."""
    found: Counter[str] = Counter()
    for entry in asked:
        if entry["user"]["username"] == OPERATOR and entry["verb"] != "watch":
            ref = entry.get("objectRef") or {}
            sub = f"/{ref['subresource']}" if ref.get("subresource") else ""
            found[f"{entry['verb']} {ref.get('resource', '-')}{sub}"] += 1
    return dict(sorted(found.items()))


@click.command()
@click.option("--case", "cases", multiple=True, help="As above; may be repeated.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the results as JSON.")
def main(cases: tuple[str, ...], output: Path | None) -> None:
    """Measure rollouts on a real control plane beside their floor."""
    results = [measure(BenchCase.parse(text)) for text in cases or CASES]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("nodes", "parallel", "driver+validator s", "seconds", "floor", "ratio", "object writes/node", "events/node",
                   "reads/node", "CPU s", "peak MB", "most cordoned"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(*_row(result))
    Console(width=180).print(table)
    if output:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(results)))


def _row(result: BenchResult) -> list[str]:
    case = result.case
    writes = result.count(*WRITES) - result.count("create", resource="events") - result.count("update", resource="leases")
    # The requests of a part of a rollout are also about nodes that are only asked to wait.
    per_node = ["-"] * 3 if case.first else [
        f"{writes:.1f}", f"{result.count('create', resource='events'):.1f}", f"{result.count('get', 'list'):.1f}",
    ]
    return [
        f"{case.first} of {case.nodes}" if case.first else str(case.nodes), str(case.parallel or "no limit"),
        f"{case.driver_seconds:g}+{case.validator_seconds:g}",
        f"{result.seconds:.1f}", f"{result.floor_seconds:.1f}", f"{result.ratio:.2f}", *per_node,
        f"{result.cpu_seconds:.1f}", f"{result.peak_mb:.0f}", str(result.most_cordoned),
    ]


if __name__ == "__main__":
    main()
