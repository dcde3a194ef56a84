"""Make pods go: by the eviction API where workloads are concerned, by deletion where they are our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpuward import errors, names
from gpuward.execute.world import CalledOff, World, is_refusal, settle_after, to_its_end
from gpuward.kube import resources
from gpuward.kube.doubts import settle
from gpuward.kube.http.client import Selection
from gpuward.kube.memory import Going
from gpuward.model.actions import CreatePod, DeletePod, EvictPod, LastLook, ReleasePod
from gpuward.model.driver import concerns_driver, is_driver_pod, is_staging, owner_uid
from gpuward.model.views import PodView, Ref
from gpuward.model.workloads import uses_gpus
from gpuward.upgrade.evictable_pods import users_of_driver
from gpuward.upgrade.module_holders import holds_modules
from gpuward.wire.pods import pod_view

_COMPONENT: Final = names.COMPONENT_LABEL.replace("/", "~1")


async def evict_pod(world: World, action: EvictPod) -> None:
    """Ask for a pod's eviction; a refusal is remembered, so that the next attempt waits.

    Raises:
        errors.TooManyRequests: a disruption budget protects the pod now.
    """
    cluster, ref = world.cluster, action.pod
    key, going = (ref.namespace, ref.name), cluster.going(ref)
    budgets = cluster.room.over(cluster.pods.get(key), cluster.budgets.values())
    try:
        await to_its_end(cluster.client.evict(ref.name, ref.namespace, uid=ref.uid))
    except errors.NotFound:
        cluster.pods.gone(key, ref.uid)
    except errors.GpuwardError as error:
        if isinstance(error, errors.Conflict):
            await settle_after(error, world, resources.PODS, cluster.pods, key)
        _may_go(world, ref, going, error)
        cluster.refused(ref, world.clock.now(), str(error))
        raise
    else:
        cluster.accepted(ref, going, world.clock.now())
        cluster.room.take(budgets)
        cluster.pods.overlay(key, ref.uid, _as_deleting, lambda pod: pod.deleting)


def _may_go(world: World, pod: Ref, going: Going | None, error: errors.GpuwardError) -> None:
    """Take it that a pod may go although no answer says so: another one of its owner may come back for it."""
    if isinstance(error, errors.Unreachable | errors.ServerError):
        world.cluster.accepted(pod, going, world.clock.now(), lost=True)


def _as_deleting(pod: PodView) -> PodView:
    return msgspec.structs.replace(pod, deleting=True)


async def delete_pod(world: World, action: DeletePod) -> None:
    """Delete a pod, after a last look at its node where that is asked for; a refusal is remembered, so that people are told.

    Raises:
        CalledOff: a pod that must leave is on the node, or one that was to have no node has one. It is in the cache now, so the
            next decision knows.
    """
    try:
        if action.same_driver:
            async with world.gate.opening():
                await _delete(world, action)
        else:
            await _delete(world, action)
    except errors.GpuwardError as error:
        # A connection that broke may have carried it all the same.
        if (refused := is_refusal(error)) or isinstance(error, errors.Unreachable):
            world.cluster.refused(action.pod, world.clock.now(), str(error), lost=not refused)
        raise


async def _delete(world: World, action: DeletePod) -> None:
    cluster, ref = world.cluster, action.pod
    key = (ref.namespace, ref.name)
    if action.last_look is not None:
        await last_look(world, action.node, action.last_look)
    version, going = await _unplaced(world, ref) if action.unplaced else _version(world, action), cluster.going(ref)
    _check_same_driver(world, action)
    world.check_acting()
    try:
        answer = await cluster.client.delete_pod(
            ref.name, ref.namespace, uid=ref.uid, version=version, grace_seconds=action.grace)
    except errors.NotFound:
        cluster.pods.gone(key, ref.uid)
    except errors.GpuwardError as error:
        await settle_after(error, world, resources.PODS, cluster.pods, key)
        _may_go(world, ref, going, error)
        raise
    else:
        cluster.accepted(ref, going, world.clock.now())
        cluster.pods.deleted(key, ref.uid, answer.body)


def _version(world: World, action: DeletePod) -> str:
    """Return the version of a host's driver pod that the last look saw: one that has changed since may have an owner again."""
    machines = action.last_look is not None and action.last_look.machines
    seen = world.cluster.pods.get((action.pod.namespace, action.pod.name)) if machines else None
    return seen.version if seen is not None and seen.uid == action.pod.uid else ""


def _check_same_driver(world: World, action: DeletePod) -> None:
    """Look whether the driver pod is still followed by one with the same driver, directly before it is deleted.

    Raises:
        CalledOff: it is not.
    """
    pod = world.cluster.pods.get((action.pod.namespace, action.pod.name))
    if not action.same_driver or pod is None:
        return
    found = (ds for ds in world.cluster.daemonsets.values() if pod.is_owned_by(ds.uid))
    if any(ds.config_digest != action.same_driver for ds in found):
        raise CalledOff(f"another driver would follow pod {action.pod}: node {action.node} has to be emptied first")


async def _unplaced(world: World, ref: Ref) -> str:
    """Read a pod that has no node as far as is known, and return its version: the watch may have been silent since it got one."""
    try:
        answer = await world.cluster.client.get(resources.PODS, ref.name, ref.namespace)
    except errors.NotFound:
        return ""
    world.cluster.pods.apply_response(answer.body)
    pod = pod_view(answer.body)
    if pod.uid == ref.uid and pod.node:
        raise CalledOff(f"pod {ref} is on node {pod.node} by now: what becomes of it is decided anew")
    return pod.version


async def _is_anothers(world: World, ref: Ref) -> bool:
    """Tell whether a pod is for something else than images; one that nothing is decided about is not kept, so it is read."""
    there = world.cluster.pods.get((ref.namespace, ref.name))
    if there is not None:
        return not is_staging(there.labels)
    try:
        found = (await world.cluster.client.get(resources.PODS, ref.name, ref.namespace)).object()
    except errors.NotFound:
        return False
    return not is_staging(found["metadata"].get("labels") or {})


async def create_pod(world: World, action: CreatePod) -> None:
    """Create a pod; a refusal is remembered, so that its node does not wait for it.

    Raises:
        CalledOff: there is one of its name. It is in the cache now, so the next decision knows; one that is for something else,
            as somebody changed its label, is remembered as a refusal.
    """
    cluster, ref = world.cluster, action.ref
    key = (ref.namespace, ref.name)
    try:
        answer = await cluster.client.create(resources.PODS, action.body)
    except errors.GpuwardError as error:
        if isinstance(error, errors.AlreadyExists):
            await settle(cluster.client, resources.PODS, cluster.pods, key)
            if await _is_anothers(world, ref):  # else it would be asked for again, or nobody would look again
                cluster.staged(action.node, world.clock.now(), f"there is a pod {ref} already, which has lost its label "
                               f"app={names.STAGING_APP}: delete it")
            raise CalledOff(f"pod {ref} is there already") from error
        await settle_after(error, world, resources.PODS, cluster.pods, key)
        if is_refusal(error):
            cluster.staged(action.node, world.clock.now(), str(error))
        raise
    cluster.pods.apply_response(answer.body)
    cluster.staged(action.node, world.clock.now())


async def release_pod(world: World, action: ReleasePod) -> None:
    """Take a pod's controller away, and the label by which another one would adopt it, in one patch; and have it keep other
    driver pods off its node, whatever people have labelled it.

    Raises:
        errors.Conflict: the pod is another one, or has another owner by now.
    """
    cluster, ref = world.cluster, action.pod
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": ref.uid},
        *_freed(action.owner_uid),
        {"op": "add", "path": "/metadata/labels/app", "value": names.LEFT_DRIVER_APP},
        {"op": "add", "path": f"/metadata/labels/{_COMPONENT}", "value": names.DRIVER_COMPONENT},
    ]
    try:
        answer = await cluster.client.patch_json(resources.PODS, ref.name, patch, ref.namespace)
    except errors.GpuwardError as error:
        await settle_after(error, world, resources.PODS, cluster.pods, (ref.namespace, ref.name))
        raise
    cluster.pods.apply_response(answer.body)


def _freed(owner: str) -> list[dict[str, Any]]:
    """Return the operations that take away a pod's owner; without one, that it has none."""
    if not owner:
        return [{"op": "test", "path": "/metadata/ownerReferences", "value": None}]
    return [{"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": owner},
            {"op": "remove", "path": "/metadata/ownerReferences/0"}]


async def last_look(world: World, node: str, look: LastLook) -> None:
    """List the node's pods by a quorum read: the watch may lag, and the scheduler may have bound a pod after the cordon.

    Raises:
        CalledOff: a pod that must leave is among them. It is in the cache now, so the next decision knows.
    """
    there = await _listed(world, node)
    if any(pod.uid in look.module_holders and holds_modules(pod) for pod in there):
        return
    if staying := _staying(world, there, look):
        raise CalledOff(f"pod {staying[0].ref} uses a GPU of node {node}: the driver stays until it has gone")


def _staying(world: World, there: Iterable[PodView], look: LastLook) -> list[PodView]:
    """Return the pods that call an action off, as its decision tells them: else it would be tried again and again."""
    namespace = world.cluster.namespace
    if not look.machines:
        return users_of_driver(there, look, namespace)
    return [pod for pod in there if uses_gpus(pod, namespace, variable=look.variable)]


async def look_for_others(world: World, node: str, known: Mapping[str, str]) -> None:
    """List the node's pods by a quorum read: the watch may have been silent while a driver pod, or a user of GPUs, came, or
    while a driver pod was adopted.

    Raises:
        CalledOff: one that was not known is among them, or the DaemonSet of one. It is in the cache now: the next decision knows.
    """
    for pod in await _listed(world, node):
        living = not (pod.finished or pod.deleting) and concerns_driver(pod, world.cluster.namespace)
        if living and known.get(pod.uid) != owner_uid(pod) and not _is_ignored(world, pod):
            raise CalledOff(f"pod {pod.ref} has come to node {node}, or has another owner: the driver's place is decided anew")
        if living and is_driver_pod(pod, world.cluster.namespace):
            await _look_for_owner(world, pod)


async def _look_for_owner(world: World, pod: PodView) -> None:
    """Read the DaemonSet of a driver pod that was taken to be gone: it may be a new one that the watch has not shown."""
    owner, cache = pod.owner, world.cluster.daemonsets
    if owner is None or owner.kind != "DaemonSet" or any(ds.uid == owner.uid for ds in cache.values()):
        return
    key = (pod.namespace, owner.name)
    await settle(world.cluster.client, resources.DAEMON_SETS, cache, key)
    found = cache.get(key)
    if found is not None and found.uid == owner.uid:
        raise CalledOff(f"DaemonSet {owner.name} of pod {pod.ref} has come: the driver's place is decided anew")


def _is_ignored(world: World, pod: PodView) -> bool:
    """Tell whether a pod only holds the driver, and is none that decisions go by: where such ones are ignored they are not kept,
    and no decision would ever know it.
    """
    holds = not (pod.uses_gpu or is_driver_pod(pod, world.cluster.namespace))
    return holds and world.cluster.pods.get((pod.namespace, pod.name)) is None


async def look_for_driver(world: World, pod: Ref) -> None:
    """Read a driver pod by which a node is to be called done.

    Raises:
        CalledOff: it is gone, or goes. That is in the cache now, so the next decision knows.
    """
    key = (pod.namespace, pod.name)
    await settle(world.cluster.client, resources.PODS, world.cluster.pods, key)
    found = world.cluster.pods.get(key)
    if found is None or found.uid != pod.uid or found.deleting:
        raise CalledOff(f"driver pod {pod} is there no longer: whether its node is done is decided anew")


async def look_for_pods(world: World, owner: Ref) -> None:
    """List the pods of a DaemonSet's namespace by a quorum read: it may have adopted some that the watch has not shown.

    Raises:
        CalledOff: one on a node is the DaemonSet's. It is in the cache now, so the next decision knows.
    """
    async for raw in world.cluster.client.list(Selection(resources.PODS, namespace=owner.namespace)):
        world.cluster.pods.apply_response(bytes(raw))
        pod = pod_view(raw)
        if pod.is_owned_by(owner.uid) and pod.node and not (pod.finished or pod.deleting):
            raise CalledOff(f"pod {pod.ref} is of DaemonSet {owner}, which was to go without one")


async def _listed(world: World, node: str) -> tuple[PodView, ...]:
    found = []
    async for raw in world.cluster.client.list(Selection(resources.PODS, fields=f"spec.nodeName={node}")):
        world.cluster.pods.apply_response(bytes(raw))
        found.append(await _with_claims(world, pod_view(raw)))
    return tuple(found)


async def _with_claims(world: World, pod: PodView) -> PodView:
    """Return the pod as its claims make it, read once more where a watch that lags could hide a GPU."""
    seen = world.cluster.with_claims(pod)
    if seen.uses_gpu or not pod.claims:
        return seen
    for name in pod.claims:
        await settle(world.cluster.client, resources.RESOURCE_CLAIMS, world.cluster.claims, (pod.namespace, name))
    return world.cluster.with_claims(pod)
