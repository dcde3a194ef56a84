"""`gpuward status`: every node with its upgrade state, why it waits and since when."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import structlog
from rich.console import Group
from rich.live import Live

from gpuward.cli.connect import connected
from gpuward.cli.leader import Leader
from gpuward.cli.look import Look, Picture
from gpuward.cli.terminal import console, say_json, styled
from gpuward.cli.view import node_rows, node_table
from gpuward.model.explain import sentence
from gpuward.model.record import format_time
from gpuward.operands.rollout import progress
from gpuward.policy.refused import refusal, refusals
from gpuward.ports import Observer

LEASE_EVERY = 5.0
"""Seconds between two looks at the operator's Lease while nodes are watched."""


def show_status(kubeconfig: str | None, context: str | None, namespace: str, watch: bool, output: str) -> None:
    """Print the plan, once or whenever it changes."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    asyncio.run(_status(kubeconfig, context, namespace, watch, output))


async def _status(kubeconfig: str | None, context: str | None, namespace: str, watch: bool, output: str) -> None:
    async with connected(kubeconfig, context) as (client, _):
        look = Look(client, namespace)
        async with look.following() as observer:
            await _Status(look, output).show(observer, watch)


class _Status:
    def __init__(self, look: Look, output: str) -> None:
        self.look = look
        self.output = output
        self.console = console()
        self.leader = Leader("", 0.0)
        self._asked = float("-inf")

    async def show(self, observer: Observer, watch: bool) -> None:
        """Print the plan, once or whenever it changes."""
        if watch and self.output == "table":
            await self._live(observer)
        await self._print()
        while watch:
            await observer.changed(None)
            observer.observe()
            await self._print()

    async def _live(self, observer: Observer) -> None:
        with Live(console=self.console, auto_refresh=False) as live:
            while True:
                observer.observe()
                await self._ask()
                live.update(Group(*self._table()), refresh=True)
                await observer.changed(1.0)

    async def _print(self) -> None:
        await self._ask()
        if self.output == "json":
            say_json(as_json(self.look.picture(self.leader), self.leader))
        else:
            self.console.print(*self._table(), sep="\n")

    def _table(self) -> tuple[Any, ...]:
        picture = self.look.picture(self.leader)
        now = max(self.leader.now + time.monotonic() - self._asked, picture.now)
        return styled(_headline(picture)), styled(self.leader.message), node_table(node_rows(picture.plan, now))

    async def _ask(self) -> None:
        if time.monotonic() >= self._asked + LEASE_EVERY:
            self.leader = await self.look.leader()
            self._asked = time.monotonic()


def _headline(picture: Picture) -> str:
    active, plan = picture.active, picture.plan
    counts = plan.counts
    if picture.elsewhere:
        return picture.elsewhere
    if active.view is None and not plan.nodes:
        return f"{_none(picture)}: nothing is managed"
    if active.view is None:
        return f"{_none(picture)}: no driver is upgraded until one is in force; {progress(counts)}"
    if refused := refusal(picture.drivers):
        return refused
    if active.switched_off and not plan.nodes:
        return f"ClusterPolicy {active.view.name}: driver.enabled is false, so no driver is managed"
    mode = "" if plan.auto_upgrade else " (automatic upgrades are off)"
    told = f"ClusterPolicy {active.view.name}: {progress(counts)}{mode}"
    of_drivers = refusals(picture.drivers)
    if not of_drivers:
        return told
    more = f" (and {len(of_drivers) - 1} more)" if of_drivers[1:] else ""
    return f"{of_drivers[0]}{more}; apart from that {told}"


def _none(picture: Picture) -> str:
    return "no ClusterPolicy" if not picture.snapshot.policies else picture.active.upgrades.absent


def as_json(picture: Picture, leader: Leader) -> dict[str, Any]:
    """Return the plan for programs: the counts, and for each node state, since, reason code and sentence."""
    active, plan = picture.active, picture.plan
    return {
        "clusterPolicy": active.view.name if active.view else None,
        "problems": _problems(picture),
        "operator": leader.as_json(),
        "autoUpgrade": plan.auto_upgrade,
        "counts": {
            "total": plan.counts.total, "inProgress": plan.counts.in_progress, "done": plan.counts.done,
            "failed": plan.counts.failed, "pending": plan.counts.pending, "available": plan.counts.available,
            "unavailable": plan.counts.unavailable, "upToDate": plan.counts.up_to_date, "outdated": plan.counts.outdated,
        },
        "nodes": [
            {
                "name": name,
                "state": status.label or None,
                "upToDate": status.up_to_date,
                "since": format_time(status.since) if status.since else None,
                "reason": str(status.hold.reason) if status.hold else None,
                "message": sentence(status.hold) if status.hold else None,
                "until": format_time(status.hold.until) if status.hold and status.hold.until else None,
            }
            for name, status in sorted(plan.nodes.items())
        ],
    }


def _problems(picture: Picture) -> list[str]:
    """Return what is wrong with the policies: of a ClusterPolicy that is invalid every field."""
    active, refused = picture.active, refusals(picture.drivers)
    every_field = [str(problem) for problem in active.problems]
    return [*every_field, *(refused[1:] if every_field else refused), *filter(None, [active.upgrades.absent, picture.elsewhere])]
