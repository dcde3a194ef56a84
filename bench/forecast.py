"""Measure how good the forecasts of `gpuward rehearse` are, and of the operator's estimate: over rollouts that are drawn by seed.

    uv run python -m bench.forecast [--clusters 10] [--rollouts 12] [--runs 9] [--seed 0] [--jobs 2]

Each cluster is drawn: its nodes, how many are upgraded at once, whether pods with GPUs run there. It is captured, and its rollout
played in the sandbox several times, each time with other durations. Each of these plays is a rollout that comes about; what was
forecast of it are the next `--runs` plays of the same cluster, of which it is none. What the forecast assumes of durations is
true of them, but for the draw: wrong medians make a wrong forecast, and are not measured.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from random import Random

import click
import msgspec
import structlog
from tests.journeys.stage import Stage

from bench.foresight import _ask
from bench.scale import installed
from gpuward import names
from gpuward.cli.capture import captured
from gpuward.kube.http.client import Client
from gpuward.kube.http.listing import ListingTransport
from gpuward.model.states import IN_PROGRESS, State
from gpuward.rehearse.assumptions import Assumptions
from gpuward.rehearse.captured import Captured
from gpuward.rehearse.loading import Loaded, loaded
from gpuward.rehearse.playing import Play
from gpuward.rehearse.results import Run, Spread
from gpuward.rehearse.watching import Watching
from kubesandbox.timeloop import run_virtual

FEW = 5
"""Nodes after which the operator's own estimate is looked at."""


class Cluster(msgspec.Struct, frozen=True):
    """Hold what was drawn of a cluster."""

    nodes: int
    parallel: int
    busy: bool
    """Whether pods with GPUs run there, which are evicted."""


class Played(msgspec.Struct, frozen=True):
    """Hold one play of a rollout."""

    run: Run
    planned: tuple[str, ...]
    """The nodes in the order of the first plan."""
    foreseen: float | None
    """How long it takes all in all, as the operator said once a few nodes were done; None where it did not."""


class Compared(msgspec.Struct, frozen=True):
    """Hold how one rollout compares with its forecast: errors are shares of what came about."""

    eta: float
    later: float | None
    """The same for the operator's estimate, once a few nodes were done."""
    covered: tuple[bool, ...]
    """Whether it took no longer than the p90 of the first runs of the forecast, by how many these are, from one on."""
    in_order: bool
    undisturbed: bool
    """Whether no pod was evicted in it: pods that go elsewhere change the order."""
    hours: float


def drawn(random: Random) -> Cluster:
    """Draw a cluster."""
    return Cluster(random.randint(8, 20), random.choice((1, 2, 3, 4)), random.random() < 0.5)


def capture(cluster: Cluster) -> Captured:
    """Return the capture of a cluster, in which nothing has begun."""
    async def main() -> Captured:
        policy: dict[str, int | str] = {"maxParallelUpgrades": cluster.parallel, "maxUnavailable": "100%"}
        stage: Stage = await installed(cluster.nodes, **policy)
        if not cluster.busy:
            store = stage.sandbox.store
            for resource in ("deployments.apps", "jobs.batch", "replicasets.apps", "pods"):
                for meta in [obj["metadata"] for obj in store.list(resource)]:
                    if meta["namespace"] != names.DEFAULT_NAMESPACE:
                        store.delete(resource, meta["namespace"], meta["name"], grace_seconds=0)
        await stage.stop()
        return await captured(Client(ListingTransport(stage.sandbox.transport())), names.DEFAULT_NAMESPACE)
    return run_virtual(main)


def plays(cluster: Cluster, count: int) -> list[Played]:
    """Play the rollout of a cluster so many times."""
    found, assumed = capture(cluster), Assumptions()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())

    async def load() -> Loaded:
        return await loaded(found, assumed, _ask)

    play = Play(found.manifest, run_virtual(load, start=found.manifest.at), _ask, assumed)
    return [_played(play, seed) for seed in range(count)]


def _played(play: Play, seed: int) -> Played:
    planned: list[str] = []
    foreseen: list[float] = []

    def look(seen: Watching) -> None:
        nodes, left = seen.plan.nodes, seen.plan.estimate
        if not planned and any(status.state in IN_PROGRESS for status in nodes.values()):
            waiting = [name for name, status in nodes.items() if status.state is State.UPGRADE_REQUIRED]
            planned.extend(sorted(waiting, key=lambda name: nodes[name].turn))
        if not foreseen and seen.plan.counts.up_to_date >= FEW and planned and left is not None and not left.unknown:
            foreseen.append(left.finish - seen.began)

    run = play.run(seed, passed=look)
    return Played(run, tuple(planned), foreseen[0] if foreseen else None)


def compared(rollout: Played, forecast: Sequence[Run]) -> Compared:
    """Return how a rollout compares with what was forecast of it."""
    run, lasts = rollout.run, Spread.of(one.lasted for one in forecast)
    hours = Spread.of(one.hours_out for one in forecast).p50
    first = len(run.order) - len(rollout.planned)
    return Compared(
        lasts.p50 / run.lasted - 1, None if rollout.foreseen is None else rollout.foreseen / run.lasted - 1,
        tuple(run.lasted <= Spread.of(one.lasted for one in forecast[:count]).p90 for count in range(1, len(forecast) + 1)),
        run.order[first:] == rollout.planned, not run.evicted, hours / run.hours_out - 1)


def _line(what: str, errors: Iterable[float], within: float) -> str:
    found = sorted(map(abs, errors))
    inside = sum(error <= within for error in found) / len(found)
    return (f"{what}: {inside:.0%} within {within:.0%}; error {statistics.median(found):.1%} in half of them, "
            f"{Spread.of(found).p90:.1%} in nine of ten, {found[-1]:.1%} at most")


@click.command()
@click.option("--clusters", default=10, show_default=True, help="Clusters that are drawn.")
@click.option("--rollouts", default=12, show_default=True, help="Rollouts of each.")
@click.option("--runs", default=9, show_default=True, help="Runs of which a forecast is made; fewer than rollouts.")
@click.option("--seed", default=0, show_default=True, help="Draws the clusters.")
@click.option("--jobs", default=2, show_default=True, help="How many processes play.")
def main(clusters: int, rollouts: int, runs: int, seed: int, jobs: int) -> None:
    """Compare drawn rollouts with their forecasts."""
    began, random, found = time.monotonic(), Random(seed), list[Compared]()
    many = [drawn(random) for _ in range(clusters)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for cluster, made in zip(many, pool.map(plays, many, repeat(rollouts)), strict=True):
            for number, rollout in enumerate(made):
                others = [made[(number + more) % rollouts].run for more in range(1, runs + 1)]
                found.append(compared(rollout, others))
            click.echo(f"{cluster}: {_line('before the start', (one.eta for one in found[-rollouts:]), 0.2)}")
    still = [one for one in found if one.undisturbed]
    click.echo(f"{len(found)} rollouts of {clusters} clusters, {time.monotonic() - began:.0f} s")
    click.echo(_line("ETA before the start", (one.eta for one in found), 0.2))
    click.echo(_line(f"ETA once {FEW} nodes are done", (one.later for one in found if one.later is not None), 0.1))
    covered = [sum(each) / len(found) for each in zip(*(one.covered for one in found), strict=True)]
    click.echo(f"no longer than p90 of 1, 2, ... runs: {', '.join(f'{share:.0%}' for share in covered)}")
    click.echo(f"order as planned: {sum(one.in_order for one in still)} of {len(still)} undisturbed, "
               f"{sum(one.in_order for one in found)} of all")
    click.echo(_line("GPU-hours out of service", (one.hours for one in found), 0.2))


if __name__ == "__main__":
    main()
