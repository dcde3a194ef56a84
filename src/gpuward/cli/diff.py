"""`gpuward diff`: what gpuward would change in a cluster, as `kubectl diff` shows it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from gpuward.cli.connect import connected
from gpuward.cli.differences import Difference, differences, images_of, looked_at, with_references
from gpuward.cli.manifests import not_in_force, policy_views, read_objects, without_objects
from gpuward.cli.misspelt import warn_of
from gpuward.cli.terminal import in_words, say
from gpuward.errors import GpuwardError
from gpuward.kube.http.client import Client
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.report.paper import Written
from gpuward.wire.policies import oldest_first

DIFFERS, FAILED = 1, 2
"""What the command ends with, as kubectl's does."""


def show_diff(policies: Sequence[str], kubeconfig: str | None, context: str | None, namespace: str) -> None:
    """Print the differences; exit with 1 where there are some, and with 2 where it failed."""
    try:
        asyncio.run(_show(policies, kubeconfig, context, namespace))
    except GpuwardError as error:
        _fail(error)
    except BaseExceptionGroup as group:
        expected, others = group.split(GpuwardError)
        if others is not None or expected is None:
            raise
        _fail(expected)


def _fail(error: BaseException) -> None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    say(f"gpuward: {in_words(error)}", err=True)
    sys.exit(FAILED)


async def _show(policies: Sequence[str], kubeconfig: str | None, context: str | None, namespace: str) -> None:
    async with connected(kubeconfig, context) as (client, _):
        written, found = await compared(client, policies, namespace)
    for difference in found:
        for line in difference.lines():
            say(line)
    for line in (*not_in_force(written.snapshot), *written.problems):
        say(line, err=True)
    if written.problems:
        sys.exit(FAILED)
    if found:
        sys.exit(DIFFERS)


async def compared(client: Client, policies: Sequence[str], namespace: str) -> tuple[Written, list[Difference]]:
    """Return what gpuward would write in a cluster under policies of files, and how that differs from what there is.

    Raises:
        InputError: a file cannot be read, or has no policy in it.
        GpuwardError: the operator works in another namespace.
    """
    objects = read_objects("--policy", policies)
    given = policy_views("--policy", objects, policies) if policies else {}
    warn_of(objects)
    if hint := without_objects(given):
        say(hint, err=True)
    async with looked_at(client, namespace) as look:
        leader = await look.leader()
        look.picture(leader).refuse_elsewhere()
        snapshot = look.cluster.observe()
    snapshot = under(snapshot, given.get("ClusterPolicy", ()), given.get("NVIDIADriver", ()), given.get("RolloutPolicy", ()))
    snapshot = await with_references(client, snapshot)
    return await differences(client, snapshot, await images_of(client, namespace), leader.now)


def under(snapshot: Snapshot, policies: Sequence[PolicyView], drivers: Sequence[PolicyView],
          rollouts: Sequence[PolicyView] = ()) -> Snapshot:
    """Return the facts as if these policies were in the cluster, in place of those of the same names."""
    return msgspec.structs.replace(
        snapshot, policies=_put(snapshot.policies, policies), drivers=_put(snapshot.drivers, drivers),
        rollout_policies=_put(snapshot.rollout_policies, rollouts))


def _put(there: Sequence[PolicyView], given: Sequence[PolicyView]) -> tuple[PolicyView, ...]:
    before = {view.name: view for view in there}
    latest = max((view.created for view in there), default=0.0)
    for view in given:
        old = before.get(view.name)
        if old is None:
            before[view.name] = msgspec.structs.replace(view, created=latest + 1)
            continue
        notes, given_meta = (old.body.get("metadata") or {}).get("annotations") or {}, view.body["metadata"]
        meta = {**given_meta, "uid": old.uid, "annotations": {**notes, **(given_meta.get("annotations") or {})}}
        body = {**view.body, "metadata": meta, "status": old.body.get("status") or {}}
        before[view.name] = msgspec.structs.replace(old, generation=old.generation + 1, body=body)
    return oldest_first(before.values())
