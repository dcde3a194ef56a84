"""The objects that say whether drivers are upgraded: the ClusterPolicy in force or NVIDIADrivers, as they are stored."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from gpuward import names
from gpuward.cli.connect import WallClock, connected
from gpuward.cli.leader import find_leader
from gpuward.cli.terminal import say
from gpuward.errors import Conflict, Forbidden, GpuwardError, InputError, NotFound
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import GVR
from gpuward.model.listing import listed
from gpuward.model.views import NodeView, PolicyView
from gpuward.model.waves import command_for
from gpuward.policy.annotated import annotation
from gpuward.policy.pausing import FIELDS, is_our_word
from gpuward.wire.nodes import node_view
from gpuward.wire.policies import oldest_first, policy_view

ATTEMPTS = 5
"""How often an object is read again that somebody else changes at the same time: the operator writes its status now and then."""

Patch = dict[str, Any]
Lines = AsyncIterator[str]


class PolicyRollout(msgspec.Struct, frozen=True):
    """Hold an object that has upgrades of its own."""

    view: PolicyView
    driver: bool = False
    """Whether it is an NVIDIADriver, and not the ClusterPolicy."""

    @property
    def title(self) -> str:
        """Return kind and name."""
        return f"{'NVIDIADriver' if self.driver else 'ClusterPolicy'} {self.view.name}"

    @property
    def resume(self) -> str:
        """Return the command that lets it go on, and no other."""
        return command_for("resume", self.view.name if self.driver else "")

    @property
    def resource(self) -> GVR:
        return resources.NVIDIA_DRIVERS if self.driver else resources.CLUSTER_POLICIES

    @property
    def field(self) -> str:
        """Return the field that turns its upgrades on and off."""
        return FIELDS["NVIDIADriver" if self.driver else "ClusterPolicy"]

    @property
    def is_on(self) -> bool:
        """Tell whether it upgrades drivers: an NVIDIADriver does unless it says otherwise, a ClusterPolicy only if it says so."""
        found: Any = self.view.body
        for key in self.field.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return self.driver if found is None else found is True

    @property
    def serves_machines(self) -> bool:
        """Tell whether it is a ClusterPolicy that lets nodes serve virtual machines: then no driver is upgraded."""
        return (self.view.body.get("spec", {}).get("sandboxWorkloads") or {}).get("enabled") is True

    @property
    def paused_at(self) -> str:
        """Return what `gpuward pause` left."""
        return annotation(self.view.body, names.PAUSED_AT)

    @property
    def is_paused(self) -> bool:
        """Tell whether `gpuward pause` has turned its upgrades off, and nobody has turned them on and off again since."""
        return bool(self.paused_at) and not self.is_on and is_our_word(self.view.body, self.field)

    def switched(self, on: bool, paused_at: str | None) -> Patch:
        """Return the merge patch that turns its upgrades on or off."""
        spec: Any = on
        for key in reversed(self.field.split(".")[1:]):
            spec = {key: spec}
        return {"metadata": {"annotations": {names.PAUSED_AT: paused_at}}, "spec": spec}


class Rollouts(msgspec.Struct, frozen=True):
    """Hold the ClusterPolicy in force, if there is one, and all NVIDIADrivers."""

    policy: PolicyRollout | None
    drivers: tuple[PolicyRollout, ...] = ()

    @property
    def left_to_drivers(self) -> bool:
        """Tell whether the ClusterPolicy leaves drivers to NVIDIADrivers."""
        spec = (self.policy.view.body.get("spec") or {}) if self.policy is not None else {}
        return (spec.get("driver") or {}).get("useNvidiaDriverCRD") is True

    def in_force(self, what: str) -> PolicyRollout:
        """Return the ClusterPolicy. Raises GpuwardError without one."""
        if self.policy is None:
            raise GpuwardError(f"there is no ClusterPolicy, and so no rollout to {what}")
        return self.policy

    def named(self, name: str, what: str) -> PolicyRollout:
        """Return the NVIDIADriver of a name, which must have rollouts of its own.

        Raises:
            GpuwardError: there is no ClusterPolicy.
            InputError: there is no NVIDIADriver of that name, or drivers are not those of NVIDIADrivers.
        """
        policy = self.in_force(what).view
        found = {each.view.name: each for each in self.drivers}
        if name not in found:
            near = ", ".join(difflib.get_close_matches(name, found, n=3, cutoff=0.0))
            raise InputError("--driver", name, f"name an NVIDIADriver, such as {near}" if near else "leave it out: there is none")
        if not self.left_to_drivers:
            fix = f"leave it out: ClusterPolicy {policy.name} does not set driver.useNvidiaDriverCRD, so there is but one rollout"
            raise InputError("--driver", name, fix)
        return found[name]

    def of(self, node: NodeView) -> PolicyRollout | None:
        """Return the object by which a node's driver is upgraded, None where there is none."""
        if not self.left_to_drivers:
            return self.policy
        owner = node.labels.get(names.DRIVER_OWNER)
        return next((each for each in self.drivers if each.view.name == owner), None)


async def meant(client: Client, driver: str, verb: str) -> tuple[Rollouts, tuple[PolicyRollout, ...]]:
    """Read the rollouts, and choose those that a verb is for: those of all NVIDIADrivers, unless one is named.

    Raises:
        GpuwardError: there is no rollout.
        InputError: there is no NVIDIADriver of that name, or drivers are not those of NVIDIADrivers.
    """
    rollouts = await read_rollouts(client)
    policy, there = rollouts.in_force(verb), {each.view.name for each in rollouts.drivers}
    if not driver and not rollouts.left_to_drivers:
        return rollouts, (policy,)
    if rollouts.left_to_drivers and (driver not in there if driver else not there):
        labels = {node.labels.get(names.DRIVER_OWNER, "") for node in await all_nodes(client)} - there - {""}
        if gone := sorted(labels & {driver} if driver else labels):
            raise GpuwardError(
                f"there is no rollout to {verb}: NVIDIADriver {listed(gone)} was deleted, and its driver goes from its nodes "
                "unless it was left behind; make it again to end that, or keep a node as it is: gpuward skip NODE")
    if driver:
        return rollouts, (rollouts.named(driver, verb),)
    if not rollouts.drivers:
        raise GpuwardError(f"{policy.title} leaves drivers to NVIDIADrivers, and there is none: there is no rollout to {verb}")
    return rollouts, rollouts.drivers


async def read_rollouts(client: Client) -> Rollouts:
    """Read them as they are now. A kind that is not installed has no objects."""
    policies, drivers = await asyncio.gather(_all(client, resources.CLUSTER_POLICIES), _drivers(client))
    policy = Rollouts(next((PolicyRollout(view) for view in oldest_first(policies) if not view.deleting), None))
    if isinstance(drivers, Forbidden):
        if policy.left_to_drivers:
            raise drivers
        return policy
    rollouts = (PolicyRollout(view, driver=True) for view in drivers if not view.deleting)
    return msgspec.structs.replace(policy, drivers=tuple(sorted(rollouts, key=lambda each: each.view.name)))


async def _drivers(client: Client) -> list[PolicyView] | Forbidden:
    try:
        return await _all(client, resources.NVIDIA_DRIVERS)
    except Forbidden as error:
        return error


async def _all(client: Client, resource: GVR) -> list[PolicyView]:
    try:
        return [policy_view(raw) async for raw in client.list(Selection(resource))]
    except NotFound:
        return []


async def all_nodes(client: Client) -> list[NodeView]:
    """Read all nodes."""
    return [node_view(raw) async for raw in client.list(Selection(resources.NODES))]


async def change(
    client: Client, rollout: PolicyRollout, patch_of: Callable[[PolicyRollout], Patch | None]
) -> PolicyRollout | None:
    """Patch an object as it was read, or as it is by now if somebody else was faster.

    Return None when it was patched, else the object as it is: there was nothing to change in it.

    Raises:
        Conflict: it is another object by now, or changes all the time.
    """
    for attempt in range(1, ATTEMPTS + 1):
        patch = patch_of(rollout)
        if patch is None:
            return rollout
        read = rollout.view
        meta = {**patch.get("metadata", {}), "uid": read.uid, "resourceVersion": read.version}
        try:
            await client.patch_merge(rollout.resource, read.name, {**patch, "metadata": meta})
        except Conflict:
            rollout = PolicyRollout(policy_view((await client.get(rollout.resource, read.name)).body), rollout.driver)
            if attempt == ATTEMPTS or rollout.view.uid != read.uid:
                raise
        else:
            return None
    raise AssertionError


def time_of(client: Client) -> float:
    """Return the API server's time: a clock of ours that is ahead would forgive what has yet to fail."""
    return client.date if client.date is not None else WallClock().now()


async def idle(client: Client, policy: PolicyRollout | None) -> str:
    """Say that nothing comes next, where no operator runs; else nothing."""
    status = (policy.view.body.get("status") or {}) if policy is not None else {}
    leader = await find_leader(client, str(status.get("namespace") or names.DEFAULT_NAMESPACE), WallClock())
    return f"Next: nothing yet, as {leader.message}" if leader.running is False else ""


async def said_if_idle(client: Client, lines: Lines, *, dry_run: bool) -> Lines:
    """Yield what was done, and that nothing follows from it yet where no operator runs; of a dry run nothing follows anyway."""
    async for line in lines:
        yield line
    if not dry_run and (told := await idle(client, (await read_rollouts(client)).policy)):
        yield told


def tell(kubeconfig: str | None, context: str | None, lines_of: Callable[[Client], Lines]) -> None:
    """Do something in the cluster that a person means, and print each line when what it tells is done."""

    async def tell_all() -> None:
        async with connected(kubeconfig, context) as (client, _):
            async for line in lines_of(client):
                say(line)

    asyncio.run(tell_all())
