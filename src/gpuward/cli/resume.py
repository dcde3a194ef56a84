"""`gpuward resume`: let a rollout go on that its failure budget has paused."""

from __future__ import annotations

import asyncio

import click
import msgspec

from gpuward import names
from gpuward.cli.connect import WallClock, connected, connection_options
from gpuward.controllers.rollouts import annotation, resumed_at
from gpuward.errors import GpuwardError, NotFound, PolicyError
from gpuward.kube import resources
from gpuward.kube.client import Client, Selection
from gpuward.model.record import format_time
from gpuward.model.views import NodeView, PolicyView
from gpuward.wire.nodes import node_view
from gpuward.wire.policies import policy_view

SHOWN = 10
"""Nodes that are named; a large fleet may have more."""


class Resumed(msgspec.Struct, frozen=True):
    """Hold what was done: on which ClusterPolicy, up to when failures are forgiven, and on which nodes there are any."""

    policy: str
    at: float
    nodes: tuple[str, ...]


@click.command()
@connection_options
def resume(kubeconfig: str | None, context: str | None) -> None:
    """Let a rollout go on that too many failures have paused: those up to now no longer count.

    The nodes that failed stay as they are. Label one upgrade-required to have it tried again.
    """
    done = asyncio.run(_resume(kubeconfig, context))
    click.echo(f"ClusterPolicy {done.policy}: resumed at {format_time(done.at)}; {forgiven(done.nodes)}")


async def _resume(kubeconfig: str | None, context: str | None) -> Resumed:
    async with connected(kubeconfig, context) as (client, _):
        return await resume_rollout(client, WallClock().now())


async def resume_rollout(client: Client, now: float) -> Resumed:
    """Write onto the ClusterPolicy in force that failures up to now are forgiven.

    Raises:
        GpuwardError: there is no ClusterPolicy.
        Conflict: it was deleted and made anew meanwhile.
    """
    policy = await _in_force(client)
    nodes = [node_view(raw) async for raw in client.list(Selection(resources.NODES))]
    before = _resumed_before(policy)
    failed = {node.name: at for node in nodes if (at := failed_at(node)) > before}
    at = max(now, *failed.values(), before)  # the operator's clock may be ahead of ours
    patch = {"metadata": {"uid": policy.uid, "annotations": {names.RESUMED_AT: format_time(at)}}}
    await client.patch_merge(resources.CLUSTER_POLICIES, policy.name, patch)
    return Resumed(policy.name, at, tuple(sorted(failed)))


async def _in_force(client: Client) -> PolicyView:
    try:
        policies = [policy_view(raw) async for raw in client.list(Selection(resources.CLUSTER_POLICIES))]
    except NotFound:
        policies = []
    if not policies:
        raise GpuwardError("there is no ClusterPolicy, and so no rollout to resume")
    return min(policies, key=lambda view: (view.created, view.name))


def failed_at(node: NodeView) -> float:
    """Return when a node's upgrade failed last, 0 for a node on which nothing has failed; one that is tried again counts."""
    return node.record.failure.at if node.record is not None and node.record.failure is not None else 0.0


def forgiven(nodes: tuple[str, ...]) -> str:
    """Say in a few words how many failures no longer count."""
    if not nodes:
        return "no node has failed since it was resumed last"
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    count = "1 failed node no longer counts" if len(nodes) == 1 else f"{len(nodes)} failed nodes no longer count"
    return f"{count} against the failure budget ({', '.join(nodes[:SHOWN])}{more})"


def _resumed_before(policy: PolicyView) -> float:
    try:
        return resumed_at(annotation(policy.body, names.RESUMED_AT))
    except PolicyError:  # it counts as absent, and is replaced
        return 0.0
