"""`gpuward resume`: let a rollout go on that its failure budget has paused."""

from __future__ import annotations

import asyncio
import difflib

import msgspec

from gpuward import names
from gpuward.cli.connect import WallClock, connected
from gpuward.cli.terminal import say
from gpuward.errors import GpuwardError, InputError, NotFound, PolicyError
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import GVR
from gpuward.model.record import format_time
from gpuward.model.rollout import CLOCKS_DIFFER
from gpuward.model.views import NodeView, PolicyView
from gpuward.policy.rolloutpolicy import annotation, resumed_at
from gpuward.wire.nodes import node_view
from gpuward.wire.policies import policy_view

SHOWN = 10
"""Nodes that are named; a large fleet may have more."""


class Resumed(msgspec.Struct, frozen=True):
    """Hold what was done: on which object, up to when failures are forgiven, and on which nodes there are any."""

    policy: str
    at: float
    nodes: tuple[str, ...]
    driver: bool = False
    """Whether it is an NVIDIADriver, and not the ClusterPolicy."""

    @property
    def title(self) -> str:
        """Return kind and name of the object."""
        return f"{'NVIDIADriver' if self.driver else 'ClusterPolicy'} {self.policy}"


def resume_paused(kubeconfig: str | None, context: str | None, driver: str) -> None:
    """Resume and say what was done. Raises as `resume_rollout` does."""
    done = asyncio.run(_resume(kubeconfig, context, driver))
    say(f"{done.title}: resumed at {format_time(done.at)}; {forgiven(done.nodes)}")


async def _resume(kubeconfig: str | None, context: str | None, driver: str) -> Resumed:
    async with connected(kubeconfig, context) as (client, _):
        await _all(client, resources.CLUSTER_POLICIES)
        # The API server's time: a clock of ours that is ahead would forgive what has yet to fail.
        now = client.date if client.date is not None else WallClock().now()
        return await resume_rollout(client, now, driver)


async def resume_rollout(client: Client, now: float, driver: str = "") -> Resumed:
    """Write onto the ClusterPolicy in force, or onto an NVIDIADriver, that failures up to now are forgiven.

    Raises:
        GpuwardError: there is no ClusterPolicy.
        InputError: there is no NVIDIADriver of that name, or drivers are not those of NVIDIADrivers.
        Conflict: the object was deleted and made anew meanwhile.
    """
    policy = await _in_force(client)
    target = await _driver(client, driver, policy) if driver else policy
    nodes = [node_view(raw) async for raw in client.list(Selection(resources.NODES))]
    before = max(_resumed_before(policy), _resumed_before(target))
    failed = {node.name: at for node in nodes if _concerned(node, driver) and (at := failed_at(node)) > before}
    at = max([now, *(time for time in (*failed.values(), before) if time <= now + CLOCKS_DIFFER)])
    patch = {"metadata": {"uid": target.uid, "annotations": {names.RESUMED_AT: format_time(at)}}}
    await client.patch_merge(resources.NVIDIA_DRIVERS if driver else resources.CLUSTER_POLICIES, target.name, patch)
    return Resumed(target.name, at, tuple(sorted(failed)), bool(driver))


def _concerned(node: NodeView, driver: str) -> bool:
    return not driver or node.labels.get(names.DRIVER_OWNER) == driver


async def _in_force(client: Client) -> PolicyView:
    policies = await _all(client, resources.CLUSTER_POLICIES)
    if not policies:
        raise GpuwardError("there is no ClusterPolicy, and so no rollout to resume")
    return min(policies, key=lambda view: (view.created, view.name))


async def _driver(client: Client, name: str, policy: PolicyView) -> PolicyView:
    """Return the NVIDIADriver of a name, which must have rollouts of its own."""
    known = {view.name: view for view in await _all(client, resources.NVIDIA_DRIVERS)}
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.0))
        raise InputError("--driver", name, f"name an NVIDIADriver, such as {near}" if near else "leave it out: there is none")
    if policy.body.get("spec", {}).get("driver", {}).get("useNvidiaDriverCRD") is not True:
        fix = f"leave it out: ClusterPolicy {policy.name} does not set driver.useNvidiaDriverCRD, so there is but one rollout"
        raise InputError("--driver", name, fix)
    return known[name]


async def _all(client: Client, resource: GVR) -> list[PolicyView]:
    try:
        return [policy_view(raw) async for raw in client.list(Selection(resource))]
    except NotFound:
        return []


def failed_at(node: NodeView) -> float:
    """Return when a node's upgrade failed last, 0 for a node on which nothing has failed; one that is tried again counts."""
    return node.record.failure.at if node.record is not None and node.record.failure is not None else 0.0


def forgiven(nodes: tuple[str, ...]) -> str:
    """Say in a few words how many failures no longer count."""
    if not nodes:
        return "no node has failed since it was resumed last; a new driver's trouble up to now holds no node any more"
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    count = "1 failed node no longer counts" if len(nodes) == 1 else f"{len(nodes)} failed nodes no longer count"
    return f"{count} against the failure budget ({', '.join(nodes[:SHOWN])}{more})"


def _resumed_before(policy: PolicyView) -> float:
    try:
        return resumed_at(annotation(policy.body, names.RESUMED_AT))
    except PolicyError:  # it counts as absent, and is replaced
        return 0.0
