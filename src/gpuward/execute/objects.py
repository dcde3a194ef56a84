"""Write objects that are wholly ours: by full replacement at a known version, so that fields left by others go with each write.

What others add costs no write by itself, where `contains` says so: it might be the API server's, or another controller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gpuward import errors, names
from gpuward.execute.contains import contains
from gpuward.execute.pods import last_look, look_for_pods
from gpuward.execute.strategy import check_patch, check_strategy
from gpuward.execute.world import CalledOff, World, is_refusal, settle_after
from gpuward.kube import resources
from gpuward.kube.cache.cache import Cache
from gpuward.kube.http.client import Answer
from gpuward.kube.resources import GVR
from gpuward.model.actions import ApplyObject, DeleteObject, LastLook, PatchAnnotations, PatchLabels, PatchStatus, SetOwner
from gpuward.model.edits import TemplateEdited, is_news
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold
from gpuward.model.snapshot import Applied, Untaken
from gpuward.model.views import Ref
from gpuward.operands.driver.withholding import withholding
from gpuward.operands.state import beside_controller
from gpuward.wire.daemonsets import daemonset_view

WAVE_NOTES = (names.BEGUN_WAVES, names.ANALYSIS)
"""Annotations of policies that say how the waves of their rollouts stand."""

IMMUTABLE_IN_SERVICES = ("clusterIP", "clusterIPs")
IMMUTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "RoleBinding": ("roleRef",), "ClusterRoleBinding": ("roleRef",), "RuntimeClass": ("handler",),
    "ConfigMap": ("immutable",),
}
"""From a kind to what nobody may change in an object of it. Where a ConfigMap is `immutable`, no write without that is taken."""


class _Applied(NamedTuple):
    answer: Answer
    wrote: bool = True
    instead: Mapping[str, Any] | None = None
    """The object that was read and replaced."""


async def apply_object(world: World, action: ApplyObject) -> bool:
    """Create an object, or replace it; leave it alone, and return False, where a look shows that it is as wanted.

    Raises:
        CalledOff: it is a driver DaemonSet, and its driver would come under pods that use another one.
    """
    if not action.withholds:
        return await _apply(world, action)
    async with world.gate.change():
        snapshot = world.cluster.observe()
        is_new = not any((ds.namespace, ds.name) == (action.ref.namespace, action.ref.name) for ds in snapshot.daemonsets)
        if nodes := withholding(action.body, snapshot, is_new=is_new).nodes:
            raise CalledOff(f"its driver would come under the pods of node {nodes[0]}, which has come into question since")
        return await _apply(world, action)


async def _apply(world: World, action: ApplyObject) -> bool:
    gvr = resources.KINDS[action.body["apiVersion"], action.kind]
    cache = _cache(world, action.kind)
    key = (action.ref.namespace, action.ref.name)
    try:
        answer, wrote, instead = await (_replace(world, gvr, action) if action.version else _create(world, gvr, action))
    except errors.GpuwardError as error:
        _note_try(world, action)
        _note_refusal(world, action, error)
        if cache is not None:
            await settle_after(error, world, gvr, cache, key)
        raise
    if cache is not None:
        cache.apply_response(answer.body)
    meta = answer.object()["metadata"]
    digest = daemonset_view(answer.body).metadata_digest if action.kind == "DaemonSet" else ""
    if instead is not None and action.kind == "DaemonSet":
        _put_right(world, action, instead)
    applied = Applied(action.hash, meta["resourceVersion"], meta.get("generation", 0), digest)
    world.cluster.applied(action.kind, action.ref, applied)
    world.cluster.untaken.wrote_object(action.kind, action.ref, action.hash, "")
    return wrote


def _note_refusal(world: World, action: ApplyObject, error: errors.GpuwardError) -> None:
    """Note why an object is not taken, and tell of it on its owner as soon as it is said in its status."""
    if not is_refusal(error):
        return
    owner = next((ref for ref in action.body["metadata"].get("ownerReferences") or () if _is_ours(ref)), None)
    found = world.cluster.untaken.wrote_object(action.kind, action.ref, action.hash, str(error))
    if found is not None and found.count == Untaken.SURE and owner is not None:
        told = found.told(action.kind, action.ref.name)
        world.events.event(owner["kind"], Ref("", owner["name"], owner["uid"]), told, warning=True)


def _note_try(world: World, action: ApplyObject) -> None:
    """Note what may have been written although no answer tells of it: who finds it there must not take it for somebody else's."""
    last = world.cluster.last_applied(action.kind, action.ref)
    if last is not None and action.hash != last.hash and action.hash not in last.tried:
        world.cluster.applied(action.kind, action.ref, msgspec.structs.replace(last, tried=last.tried | {action.hash}))


def _put_right(world: World, action: ApplyObject, found: Mapping[str, Any]) -> None:
    """Note that somebody edited what had been applied, and tell of it once somebody does so again and again."""
    last = world.cluster.last_applied(action.kind, action.ref)
    if last is None or last.hash != action.hash or last.generation >= found["metadata"].get("generation", 0):
        return
    ref = Ref(action.ref.namespace, action.ref.name, found["metadata"]["uid"])
    edit = world.cluster.put_right(ref, world.clock.now(), _editor(found))
    if is_news(edit):
        world.events.event(action.kind, ref, sentence(Hold(TemplateEdited(ref.name, edit.by or "somebody"))), warning=True)


def _editor(found: Mapping[str, Any]) -> str:
    """Return the field manager, other than ours, that wrote to the object's spec last; empty where that is not told."""
    entries = [one for one in found["metadata"].get("managedFields") or ()
               if one.get("manager") != names.FIELD_MANAGER and "f:spec" in (one.get("fieldsV1") or {})]
    return str(max(entries, key=lambda one: one.get("time") or "")["manager"]) if entries else ""


async def _create(world: World, gvr: GVR, action: ApplyObject) -> _Applied:
    if action.again:
        await _look_at_owner(world, action)
    try:
        await check_strategy(world.cluster.client, gvr, action.body, is_new=True)
        world.check_acting()
        return _Applied(await world.cluster.client.create(gvr, action.body))
    except errors.AlreadyExists:
        if action.kind == "ServiceAccount":
            return _Applied(await world.cluster.client.get(gvr, action.ref.name, action.ref.namespace), wrote=False)
        taken = await _replace_read(world, gvr, action)
        if taken.answer.object()["metadata"].get("deletionTimestamp"):
            raise  # nothing in a cache tells of one without an owner: as a refusal it is tried again less and less often
        return taken


async def _look_at_owner(world: World, action: ApplyObject) -> None:
    """Read the owner of an object that has gone: if the owner went, and the watch has not shown it, the object would go again.

    Raises:
        CalledOff: the owner is gone, or goes. That is in the cache now, so the next decision knows.
    """
    owner = next((ref for ref in action.body["metadata"].get("ownerReferences") or () if _is_ours(ref)), None)
    if owner is None:
        return
    name, (gvr, cache) = owner["name"], _custom(world, owner["kind"])
    known = cache.get(name)
    if known is not None and known.uid == owner["uid"] and not known.deleting:
        try:
            cache.apply_response((await world.cluster.client.get(gvr, name)).body)
        except errors.NotFound:
            cache.gone(name, owner["uid"])
        known = cache.get(name)
    if known is None or known.uid != owner["uid"] or known.deleting:
        raise CalledOff(f"{owner['kind']} {name}, which it was to belong to, is gone or goes")


async def _replace(world: World, gvr: GVR, action: ApplyObject) -> _Applied:
    if action.kind == "ServiceAccount":
        return await _take_over(world, gvr, action)
    try:
        if action.verify or action.kind == "Service":
            return await _replace_read(world, gvr, action)
        return _Applied(await _replaced(world, gvr, _at(action.body, action.version, {})))
    except errors.Invalid as refused:
        return await _make_anew(world, gvr, action, refused)


async def _make_anew(world: World, gvr: GVR, action: ApplyObject, refused: errors.Invalid) -> _Applied:
    """Delete and create an object of ours that differs in what nobody may change; any other stays as it is, and refused."""
    live = (await world.cluster.client.get(gvr, action.ref.name, action.ref.namespace)).object()
    meta = live["metadata"]
    differs = any((live.get(field) or None) != action.body.get(field) for field in IMMUTABLE.get(action.kind, ()))
    if not (differs and any(map(_is_ours, meta.get("ownerReferences") or ()))):
        raise refused
    world.check_acting()
    client, version = world.cluster.client, meta["resourceVersion"]
    await client.delete(gvr, action.ref.name, action.ref.namespace, uid=meta["uid"], version=version)
    return _Applied(await client.create(gvr, action.body))


async def _replace_read(world: World, gvr: GVR, action: ApplyObject) -> _Applied:
    """Read the object and replace it at the version read, unless all that is wanted is there already."""
    found = await world.cluster.client.get(gvr, action.ref.name, action.ref.namespace)
    live = found.object()
    if live["metadata"].get("deletionTimestamp") or contains(live, action.body):  # written anew it would lose its finalizers
        return _Applied(found, wrote=False)
    answer = await _replaced(world, gvr, _at(action.body, live["metadata"]["resourceVersion"], live))
    return _Applied(answer, instead=live)


async def _replaced(world: World, gvr: GVR, body: Mapping[str, Any]) -> Answer:
    await check_strategy(world.cluster.client, gvr, body, is_new=False)
    world.check_acting()
    return await world.cluster.client.replace(gvr, body)


async def _take_over(world: World, gvr: GVR, action: ApplyObject) -> _Applied:
    """Give a service account whose owner is another custom resource of ours its new one, and leave all else in it alone."""
    found = await world.cluster.client.get(gvr, action.ref.name, action.ref.namespace)
    live = found.object()
    owners = live["metadata"].get("ownerReferences") or []
    if live["metadata"]["uid"] != action.ref.uid or not any(map(_is_ours, owners)):
        return _Applied(found, wrote=False)
    others = [owner for owner in owners if not _is_ours(owner)]
    wanted = [*action.body["metadata"]["ownerReferences"], *others]
    if owners == wanted:
        return _Applied(found, wrote=False)
    metadata = {**live["metadata"], "ownerReferences": wanted}
    world.check_acting()
    return _Applied(await world.cluster.client.replace(gvr, {**live, "metadata": metadata}))


def _is_ours(owner: Mapping[str, Any]) -> bool:
    return bool(owner.get("controller")) and owner["kind"] in names.OWNER_KINDS


def _at(body: Mapping[str, Any], version: str, live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body with the version as precondition, and with what the API server lets nobody change."""
    replaced = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    if body["kind"] == "Service":
        kept = {key: live["spec"][key] for key in IMMUTABLE_IN_SERVICES if key in live.get("spec", {})}
        replaced["spec"] = {**body["spec"], **kept}
    return replaced


async def delete_object(world: World, action: DeleteObject) -> None:
    """Delete an object; one that has gone already is as good.

    Raises:
        CalledOff: a DaemonSet that is to have no pods has one, or a pod uses the GPUs of a host that would lose its driver. It is
            in the cache now, so the next decision knows.
    """
    for node in action.unused:
        await last_look(world, node, LastLook(machines=True))
    if action.if_empty:
        await look_for_pods(world, action.ref)
    world.check_acting()
    gvr = next(gvr for (_, kind), gvr in resources.KINDS.items() if kind == action.kind)
    cache = _cache(world, action.kind)
    key = (action.ref.namespace, action.ref.name)
    try:
        answer = await world.cluster.client.delete(
            gvr, action.ref.name, action.ref.namespace, uid=action.ref.uid, propagation="Orphan" if action.orphan else ""
        )
    except errors.NotFound:
        if cache is not None:
            cache.gone(key, action.ref.uid)
    except errors.GpuwardError as error:
        if is_refusal(error):
            world.cluster.untaken.wrote_object(action.kind, action.ref, action.ref.uid, str(error), deletion=True)
        raise
    else:
        if cache is not None:
            cache.deleted(key, action.ref.uid, answer.body)
    world.cluster.untaken.wrote_object(action.kind, action.ref, action.ref.uid, "")
    world.cluster.applied(action.kind, action.ref, None)


async def patch_status(world: World, action: PatchStatus) -> None:
    """Merge our fields into a custom resource's status."""
    gvr, cache = _custom(world, action.kind)
    answer = await world.cluster.client.patch_status(gvr, action.ref.name, action.status, action.ref.namespace)
    cache.apply_response(answer.body)


async def patch_annotations(world: World, action: PatchAnnotations) -> None:
    """Set our annotations on an object, if it still is the one that was read."""
    gvr, cache = _custom(world, action.kind)
    patch = {"metadata": {"uid": action.ref.uid, "annotations": dict(action.annotations)}}
    about_waves = not action.annotations.keys().isdisjoint(WAVE_NOTES)
    if action.kind == "DaemonSet":
        await check_patch(world.cluster.client, gvr, action.ref.name, patch, action.ref.namespace)
        world.check_acting()
    try:
        answer = await world.cluster.client.patch_merge(gvr, action.ref.name, patch, action.ref.namespace)
    except errors.GpuwardError as error:
        if about_waves and is_refusal(error):
            world.cluster.untaken.noted_waves(action.kind, action.ref, str(error))
        raise
    if about_waves:
        world.cluster.untaken.noted_waves(action.kind, action.ref, "")
    cache.apply_response(answer.body)


async def set_owner(world: World, action: SetOwner) -> bool:
    """Have a ClusterPolicy own an object beside its controller, or none, at the version that is read now; return False where that
    is so already.

    Raises:
        CalledOff: the object is another one by now, goes, or has another controller. What was read is in the cache.
    """
    gvr, cache = _custom(world, action.kind)
    found = await world.cluster.client.get(gvr, action.ref.name, action.ref.namespace)
    cache.apply_response(found.body)
    live = found.object()
    meta = live["metadata"]
    owners = meta.get("ownerReferences") or []
    controller = next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")
    if meta["uid"] != action.ref.uid or meta.get("deletionTimestamp") or controller != action.controller:
        raise CalledOff(f"{action.kind} {action.ref.name} is not what it was, or has another owner by now")
    wanted = [owner for owner in owners if owner["kind"] != "ClusterPolicy" or owner.get("controller")]
    if action.policy is not None:
        wanted.append(beside_controller(action.policy))
    annotations = {**(meta.get("annotations") or {}), **action.annotations}
    changed = {**meta, "ownerReferences": wanted,
               "annotations": {key: value for key, value in annotations.items() if value is not None}}
    if changed["annotations"] == (meta.get("annotations") or {}) and wanted == owners:
        return False
    answer = await _replaced(world, gvr, {**live, "metadata": changed})
    cache.apply_response(answer.body)
    return True


async def patch_labels(world: World, action: PatchLabels) -> None:
    """Set labels on an object at the version that was read."""
    gvr, cache = _custom(world, action.kind)
    patch = {"metadata": {"uid": action.ref.uid, "resourceVersion": action.version, "labels": dict(action.labels)}}
    try:
        answer = await world.cluster.client.patch_merge(gvr, action.ref.name, patch, action.ref.namespace)
    except errors.GpuwardError as error:
        if is_refusal(error):
            world.cluster.untaken.wrote_object(action.kind, action.ref, action.ref.uid, str(error))
        await settle_after(error, world, gvr, cache, action.ref.name)
        raise
    world.cluster.untaken.wrote_object(action.kind, action.ref, action.ref.uid, "")
    cache.apply_response(answer.body)


def _custom(world: World, kind: str) -> tuple[GVR, Cache[Any, Any]]:
    found = world.cluster.kept(kind)
    assert found is not None, kind
    return found


def _cache(world: World, kind: str) -> Cache[Any, Any] | None:
    found = world.cluster.kept(kind)
    return found[1] if found is not None else None
