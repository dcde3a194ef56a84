"""`gpuward status`: every node with its upgrade state, why it waits and since when."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random
from typing import Any

import click
import msgspec
import structlog
from rich.console import Group
from rich.live import Live

from gpuward import names
from gpuward.cli.connect import check_access, connected, connection_options
from gpuward.cli.view import console, node_rows, node_table
from gpuward.controllers.interest import Interest
from gpuward.controllers.policies import ActivePolicy, PolicyReader
from gpuward.errors import NotFound
from gpuward.kube.client import Client
from gpuward.kube.cluster import Cluster
from gpuward.model.plan import Plan
from gpuward.model.record import format_time
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import parse_state
from gpuward.upgrade.decide import decide
from gpuward.upgrade.explain import sentence


@click.command()
@connection_options
@click.option("--namespace", "-n", envvar="OPERATOR_NAMESPACE", default=names.DEFAULT_NAMESPACE, show_default=True,
              help="The operator's namespace.")
@click.option("--watch", "-w", is_flag=True, help="Keep showing it as it changes, until Ctrl-C.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True, help="The form.")
def status(kubeconfig: str | None, context: str | None, namespace: str, watch: bool, output: str) -> None:
    """Show every managed node: its upgrade state, the reason why it waits, and since when.

    It works out the same plan as the operator, from the cluster's state alone, and changes nothing.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    asyncio.run(_status(kubeconfig, context, namespace, watch, output))


async def _status(kubeconfig: str | None, context: str | None, namespace: str, watch: bool, output: str) -> None:
    async with connected(kubeconfig, context) as (client, _):
        if missing := await check_access(client):
            raise NotFound(f"{missing[0]} is not installed: gpuward crds | kubectl apply --server-side -f -")
        await _Status(client, namespace, output).show(watch)


class _Status:
    def __init__(self, client: Client, namespace: str, output: str) -> None:
        self.reader = PolicyReader()
        self.cluster = Cluster(client, namespace, random=Random())
        self.interest = Interest(self.cluster, self.reader)
        self.output = output
        self.console = console()

    async def show(self, watch: bool) -> None:
        """Follow the cluster and print the plan, once or whenever it changes."""
        observer = self.cluster.watcher()
        async with asyncio.TaskGroup() as group:
            self.cluster.start(group)
            follow = group.create_task(self.interest.run(self.cluster.watcher()))
            try:
                await self.cluster.synced()
                await self._covered(observer)
                if not watch:
                    self._print(*self._plan())
                elif self.output == "json":
                    while True:
                        self._print(*self._plan())
                        await observer.changed(None)
                else:
                    await self._live(observer)
            finally:
                follow.cancel()
                self.cluster.stop()

    async def _covered(self, observer: Any) -> None:
        while not self.interest.covers(self.reader.read(observer.observe()).upgrades):
            await observer.changed(0.05)

    async def _live(self, observer: Any) -> None:
        with Live(console=self.console, auto_refresh=False) as live:
            while True:
                observer.observe()
                active, plan = self._plan()
                live.update(Group(_headline(active, plan), node_table(node_rows(plan, time.time()))), refresh=True)
                await observer.changed(1.0)

    def _plan(self) -> tuple[ActivePolicy, Plan]:
        snapshot = self.cluster.observe()
        active = self.reader.read(snapshot)
        return active, shown(decide(snapshot, active.upgrades, latest(snapshot)))

    def _print(self, active: ActivePolicy, plan: Plan) -> None:
        if self.output == "json":
            click.echo(json.dumps(as_json(active, plan)))
        else:
            self.console.print(_headline(active, plan), node_table(node_rows(plan, time.time())), sep="\n")


def latest(snapshot: Snapshot) -> float:
    """Return the time of the last step that any node took, in Unix seconds.

    The plan is worked out for that time and not for this machine's, whose clock may be ahead of the cluster's: a deadline that
    has passed here only must not be shown as a failure there.
    """
    return max((node.record.since for node in snapshot.nodes.values() if node.record), default=0.0)


def shown(plan: Plan) -> Plan:
    """Return the plan with every node in the state that its label shows now, not the one that the plan would bring it to."""
    nodes = {name: msgspec.structs.replace(status, state=parse_state(status.label)) for name, status in plan.nodes.items()}
    return msgspec.structs.replace(plan, nodes=nodes)


def _headline(active: ActivePolicy, plan: Plan) -> str:
    counts = plan.counts
    if active.view is None:
        return "no ClusterPolicy: nothing is managed"
    if active.problems:
        return f"ClusterPolicy {active.view.name} cannot be followed: {active.problems[0]}"
    mode = "" if plan.auto_upgrade else " (automatic upgrades are off)"
    return (f"ClusterPolicy {active.view.name}: {counts.done} of {counts.total} nodes done, {counts.in_progress} in progress, "
            f"{counts.pending} pending, {counts.failed} failed{mode}")


def as_json(active: ActivePolicy, plan: Plan) -> dict[str, Any]:
    """Return the plan for programs: the counts, and for each node state, since, reason code and sentence."""
    return {
        "clusterPolicy": active.view.name if active.view else None,
        "problems": [str(problem) for problem in active.problems],
        "autoUpgrade": plan.auto_upgrade,
        "counts": {
            "total": plan.counts.total, "inProgress": plan.counts.in_progress, "done": plan.counts.done,
            "failed": plan.counts.failed, "pending": plan.counts.pending, "available": plan.counts.available,
            "unavailable": plan.counts.unavailable,
        },
        "nodes": [
            {
                "name": name,
                "state": status.label or None,
                "since": format_time(status.since) if status.since else None,
                "reason": str(status.hold.reason) if status.hold else None,
                "message": sentence(status.hold) if status.hold else None,
                "until": format_time(status.hold.until) if status.hold and status.hold.until else None,
            }
            for name, status in sorted(plan.nodes.items())
        ],
    }
