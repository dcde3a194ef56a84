"""`gpuward cleanup`: take away what a GPU operator left on nodes, once its policies and its operands are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec

from gpuward import names
from gpuward.cli.connect import WallClock
from gpuward.cli.leader import find_leader
from gpuward.cli.rollouts import ATTEMPTS, Lines
from gpuward.errors import Conflict, GpuwardError, NotFound
from gpuward.execute.nodes import operations
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.resources import GVR
from gpuward.model.actions import PatchNode
from gpuward.model.record import CordonOwner
from gpuward.model.views import NodeView
from gpuward.wire.nodes import node_view

Object = dict[str, Any]

LABELS: Final = frozenset({names.GPU_PRESENT, names.UPGRADE_STATE, names.DRIVER_OWNER})
ANNOTATIONS: Final = frozenset({
    names.UPGRADE_ENABLED, names.UPGRADE_REQUESTED, names.SAFE_LOAD, names.INITIALLY_UNSCHEDULABLE, names.WAIT_FOR_JOBS_SINCE,
    names.VALIDATION_SINCE,
})
PRE_INSTALLED: Final = "pre-installed"
PAUSED: Final = "paused-for-"
"""How the values begin that the driver manager writes while it replaces a driver."""
LOOK: Final = 1.0


async def clean_nodes(client: Client, namespace: str, *, timeout: float, unless_used: bool, dry_run: bool) -> Lines:
    """Take the operator's labels, annotations and cordons off all nodes, and its Lease away; say of each what was done.

    What people set stays: labels that say what they want (such as `nvidia.com/gpu.deploy.driver=false`), and their own cordons.

    Raises:
        GpuwardError: there is a policy, or an operator or what goes by its labels is still there after `timeout` seconds, and
            `unless_used` does not say to leave everything as it is then.
        Conflict: somebody else changes a node all the time.
    """
    if used := await _used(client, namespace, timeout):
        if not unless_used:
            raise GpuwardError(f"{used}: nothing was cleaned up")
        yield f"{used}: nothing is cleaned up"
        return
    cleaned = 0
    async for raw in client.list(Selection(resources.NODES)):
        told = await _clean(client, bytes(raw), dry_run=dry_run)
        cleaned += bool(told)
        if told:
            yield told
    if not dry_run and await _drop_lease(client, namespace):
        yield f"Lease {namespace}/{names.LEADER_LEASE} deleted"
    if not cleaned:
        yield "no node has anything of a GPU operator"


async def _policies(client: Client) -> list[tuple[str, str, bool]]:
    """Return kind, name and whether it is on its way out of all policies."""
    found: list[tuple[str, str, bool]] = []
    for kind, resource in zip(names.OWNER_KINDS, (resources.CLUSTER_POLICIES, resources.NVIDIA_DRIVERS), strict=True):
        try:
            metas = [each["metadata"] async for each in _objects(client, resource)]
        except NotFound:  # its CRD is gone
            continue
        found += [(kind, meta["name"], "deletionTimestamp" in meta) for meta in metas]
    return found


async def _objects(client: Client, resource: GVR) -> AsyncIterator[Object]:
    async for raw in client.list(Selection(resource)):
        yield msgspec.json.decode(bytes(raw), type=Object)


async def _used(client: Client, namespace: str, timeout: float) -> str:
    """Wait until nothing goes by the labels of nodes any more, or writes them; say what still does."""
    if kept := [f"{kind} {name}" for kind, name, going in await _policies(client) if not going]:
        return f"there is {', '.join(kept)}, whose operands run on the nodes by the labels that they have; delete it first"
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while (there := await _still_there(client, namespace)) and loop.time() < end:
        await asyncio.sleep(LOOK)
    return there


async def _still_there(client: Client, namespace: str) -> str:
    going = [f"{kind} {name}" for kind, name, _ in await _policies(client)]
    if going:
        return f"{', '.join(going)} is still being deleted"
    sets = [each async for each in _objects(client, resources.DAEMON_SETS) if _goes_by_labels(each)]
    if sets:
        told = ", ".join(sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in sets))
        return f"DaemonSet {told} has pods where nodes have the labels"
    leader = await find_leader(client, namespace, WallClock())
    return f"{leader.message}; delete its Deployment first" if leader.running else ""


def _goes_by_labels(daemonset: Object) -> bool:
    """Tell whether a DaemonSet, whoever made it, selects nodes by a label that would go."""
    keys: Iterable[str] = daemonset["spec"]["template"]["spec"].get("nodeSelector") or ()
    return any(key in LABELS or key.startswith((names.DEPLOY_PREFIX, names.OWN_PREFIX)) for key in keys)


async def _clean(client: Client, raw: bytes, *, dry_run: bool) -> str:
    """Clean one node, reading it again if somebody else was faster; say what was done, nothing if there was nothing to do."""
    for attempt in range(1, ATTEMPTS + 1):
        patch = _patch_of(raw)
        if patch is None:
            return ""
        told = f"node {patch.node.name}: {_told(patch)}"
        if dry_run:
            return f"{told}; a dry run writes nothing"
        try:
            await client.patch_json(resources.NODES, patch.node.name, operations(patch))
        except NotFound:
            return ""
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            raw = (await client.get(resources.NODES, patch.node.name)).body
        else:
            return told
    raise AssertionError


def _patch_of(raw: bytes) -> PatchNode | None:
    view, meta = node_view(raw), msgspec.json.decode(raw, type=Object)["metadata"]
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if _is_ours(key, value, LABELS)}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if _is_ours(key, value, ANNOTATIONS)}
    lift = _is_our_cordon(view)
    if not (labels or annotations):
        return None
    return PatchNode(
        view.ref, dict.fromkeys(labels), dict.fromkeys(annotations), False if lift else None,
        expect_labels=labels, expect_annotations=annotations, expect_unschedulable=True if lift else None,
    )


def _is_ours(key: str, value: str, known: Iterable[str]) -> bool:
    """Tell whether an operator set a label or annotation, and not a person."""
    if key.startswith(names.DEPLOY_PREFIX):
        return value in ("true", PRE_INSTALLED) or value.startswith(PAUSED)
    return key in known or key.startswith(names.OWN_PREFIX)


def _is_our_cordon(view: NodeView) -> bool:
    """Tell whether an upgrade has cordoned the node, which nobody would bring to its end any more."""
    return view.unschedulable and view.record is not None and view.record.cordon is CordonOwner.GPUWARD


def _told(patch: PatchNode) -> str:
    counts = ((len(patch.labels), "label"), (len(patch.annotations), "annotation"))
    parts = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    return f"{' and '.join(parts)} removed{', uncordoned' if patch.unschedulable is False else ''}"


async def _drop_lease(client: Client, namespace: str) -> bool:
    try:
        lease = (await client.get(resources.LEASES, names.LEADER_LEASE, namespace)).object()
        await client.delete(resources.LEASES, names.LEADER_LEASE, namespace, uid=lease["metadata"]["uid"])
    except (NotFound, Conflict):
        return False
    return True
