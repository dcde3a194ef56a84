"""Look at a cluster as it would be under other policies, with the plan that the operator would make there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpuward.cli.diff import under
from gpuward.cli.differences import Difference, differences, images_of, looked_at, with_references
from gpuward.cli.look import Picture, foreseen, latest
from gpuward.cli.manifests import policy_views, read_objects
from gpuward.cli.misspelt import warn_of
from gpuward.cli.operators_word import remembered
from gpuward.cli.targets import retargeted
from gpuward.controllers.planning import Planner
from gpuward.kube.http.client import Client
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView
from gpuward.policy.nvidiadrivers import PolicyReader
from gpuward.report.foresight import PlannedNode, afterwards, planned_nodes
from gpuward.report.paper import Written
from gpuward.report.when import When
from gpuward.wire.daemonsets import daemonset_view


class Wanted(msgspec.Struct, frozen=True):
    """Hold what a person wants to know the consequences of."""

    policies: tuple[str, ...] = ()
    """Files with policies."""
    version: str = ""
    """The driver version that the policies in force are to have."""


WITHOUT: Final = "waits for an operator: it goes on once one runs"
"""What a node under way waits for that would go on in the next pass, where nobody makes one."""


class Foresight(msgspec.Struct, frozen=True):
    """Hold what would happen: what would be written, and the plan once that is there."""

    picture: Picture
    """The cluster as it would be, with the plan of the next pass and the states to which that brings nodes."""
    written: Written
    differences: tuple[Difference, ...]
    nodes: tuple[PlannedNode, ...]
    operator: str
    """Whether an operator runs that would do it."""
    wanted: Wanted = Wanted()


async def foresee(client: Client, wanted: Wanted, namespace: str) -> Foresight:
    """Return what would happen in a cluster, from nothing but reads.

    Raises:
        InputError: a file cannot be read or has no policy in it, or there is no policy that the version could be set in.
    """
    async with looked_at(client, namespace) as look:
        leader = await look.leader()
        snapshot = look.cluster.observe()
    now = leader.now if client.date is not None else latest(snapshot)
    images = await images_of(client, namespace)
    snapshot = retargeted(with_files(snapshot, wanted.policies), wanted.version, images.get("DRIVER_IMAGE", ""))
    snapshot = await with_references(client, snapshot)
    Picture(snapshot, PolicyReader().read(snapshot), Plan(), now).refuse_elsewhere()
    written, found = await differences(client, snapshot, images, now)
    after = afterwards(snapshot, written, _changed(snapshot, found), now)
    drivers = PolicyReader().read(after)
    if leader.running is not False:
        after = remembered(after, drivers, now)
    for policy in drivers.upgrades:
        after = foreseen(after, policy, now)
    plan = Planner().decide(drivers.as_decided_on(after), drivers.upgrades, now)
    nodes = planned_nodes(plan, after, drivers)
    if leader.running is False:
        nodes = [msgspec.structs.replace(one, message=WITHOUT) if one.when is When.UNDER_WAY and not one.message else one
                 for one in nodes]
    return Foresight(Picture(after, drivers, plan, now), written, tuple(found), tuple(nodes), leader.message, wanted)


def with_files(snapshot: Snapshot, files: Sequence[str]) -> Snapshot:
    """Return the facts as if the policies of files were in the cluster, in place of those of the same names.

    Raises:
        InputError: a file cannot be read, has no policy in it, or one that cannot be followed.
    """
    if not files:
        return snapshot
    objects = read_objects("--policy", files)
    given = policy_views("--policy", objects, files)
    warn_of(objects)
    return under(snapshot, given["ClusterPolicy"], given["NVIDIADriver"], given["RolloutPolicy"])


def _changed(snapshot: Snapshot, found: Sequence[Difference]) -> dict[str, DaemonSetView]:
    """Return the DaemonSets that would get another spec, by uid, as they would be once their controller has seen it."""
    views = {(ds.namespace, ds.name): ds for ds in snapshot.daemonsets}
    changed = {}
    for one in found:
        there = views.get((one.ref.namespace, one.ref.name)) if one.kind == "DaemonSet" else None
        if there is None or one.before is None or one.after is None:
            continue
        before, after = (daemonset_view(msgspec.json.encode({**body, "status": {}})) for body in (one.before, one.after))
        fields = {name: getattr(after, name) for name in DaemonSetView.__struct_fields__
                  if getattr(before, name) != getattr(after, name)}
        generation = there.generation + 1
        changed[there.uid] = msgspec.structs.replace(there, **fields, generation=generation, observed_generation=generation)
    return changed
