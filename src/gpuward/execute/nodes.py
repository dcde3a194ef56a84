"""Patch nodes: shared objects, so a JSON patch of our fields only, whose tests are what the decision was made on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuward import errors, names
from gpuward.execute.pods import last_look, look_for_driver, look_for_others
from gpuward.execute.world import CalledOff, World, is_refusal, settle_after
from gpuward.kube import resources
from gpuward.model.actions import PatchNode
from gpuward.model.placement import after
from gpuward.model.views import NodeView, Ref
from gpuward.model.withheld import digests_of, selecting

Operation = dict[str, Any]
_DRIVERS = frozenset({names.DEPLOY_DRIVER, names.GPU_PRESENT, *names.PLACED_BY})
"""Labels without which a node gets no driver, or not the one that it should have."""
_UPGRADES = frozenset({names.UPGRADE_RECORD, names.UPGRADE_ENABLED})
"""Annotations that say how a node's driver is replaced."""
_MEMORY = frozenset({names.UPGRADE_RECORD, names.UPGRADE_STATE})
"""What tells whose a cordon is, and when it goes."""


async def patch_node(world: World, action: PatchNode) -> None:
    """Patch a node, after a last look at it where that is asked for, then report the events that go with it.

    Raises:
        errors.Conflict: something that the decision was made on has changed.
        errors.Invalid: the API server has not kept what was written.
        CalledOff: a pod is on the node that must leave first, or that the decision did not know; or the driver pod by which it is
            done is there no longer.
    """
    try:
        await _patch(world, action)
    except errors.GpuwardError as error:
        if action.driver is not None and is_refusal(error):
            world.cluster.refused(action.driver, world.clock.now(), str(error))
        raise


async def _patch(world: World, action: PatchNode) -> None:
    if action.drivers is None:
        await _looked_at(world, action)
        return
    async with world.gate.opening():
        await _looked_at(world, action)


def _check_drivers(world: World, action: PatchNode) -> None:
    """Look whether the drivers are still those that the patch lets come, directly before it is sent.

    Raises:
        CalledOff: a DaemonSet has another driver by now, or another one is there.
    """
    node = world.cluster.nodes.get(action.node.name)
    if node is None or action.drivers is None:
        return
    coming = selecting(world.cluster.daemonsets.values(), after(node.labels, action.labels))
    if digests_of(coming, world.cluster.namespace) - action.drivers:
        raise CalledOff(f"other drivers would come to node {action.node.name} by now: its labels are decided anew")


async def _looked_at(world: World, action: PatchNode) -> None:
    await world.contested.look(world.cluster.client, action, world.clock.now())
    if action.last_look is not None:
        await last_look(world, action.node.name, action.last_look)
    if action.known_pods is not None:
        await look_for_others(world, action.node.name, action.known_pods)
    if action.done_by is not None:
        await _look_for_driver(world, action, action.done_by)
    _check_drivers(world, action)
    world.check_acting()
    cache = world.cluster.nodes
    before = cache.get(action.node.name)
    is_upgrade = bool(action.entered) or not _UPGRADES.isdisjoint(action.annotations) or not _DRIVERS.isdisjoint(action.labels)
    try:
        answer = await world.cluster.client.patch_json(resources.NODES, action.node.name, operations(action))
    except errors.GpuwardError as error:
        await settle_after(error, world, resources.NODES, cache, action.node.name)
        if is_upgrade and is_refusal(error):
            world.cluster.wrote(action.node, world.clock.now(), str(error))
        raise
    cache.apply_response(answer.body)
    if action.labels.get(names.DEPLOY_DRIVER, "") is None:
        world.cluster.withheld(action.node, world.clock.now())
    lost = _lost(action, answer.object())
    said = f"{', '.join(lost)} is not as it was written: an admission webhook seems to change it" if lost else ""
    if is_upgrade:
        world.cluster.wrote(action.node, world.clock.now(), said)
    if action.unschedulable and not _MEMORY.isdisjoint(lost):
        await _take_back(world, action, before, answer.object())
    if lost:
        raise errors.Invalid(said)
    _tell(world, action)


def _tell(world: World, action: PatchNode) -> None:
    """Report the events that go with a patch."""
    about = [*(("Node", action.node, event) for event in action.events), *(("Pod", *each) for each in action.pod_events)]
    for kind, ref, event in about:
        world.events.event(kind, ref, event.message, warning=event.warning)


async def _look_for_driver(world: World, action: PatchNode, pod: Ref) -> None:
    """Look whether the driver pod is still there. Where that may not be read, the node may as well not be changed."""
    try:
        await look_for_driver(world, pod)
    except errors.GpuwardError as error:
        if is_refusal(error):
            world.cluster.wrote(action.node, world.clock.now(), str(error))
        raise


async def _take_back(world: World, action: PatchNode, before: NodeView | None, node: Mapping[str, Any]) -> None:
    """Undo a patch that cordoned a node and of whose memory something was dropped: nobody would know any more whose the cordon
    is. Where what it wrote has changed since, or this is refused too, the next write of it is what is tried again.
    """
    cache = world.cluster.nodes
    try:
        answer = await world.cluster.client.patch_json(resources.NODES, action.node.name, _undo(action, before, node))
    except errors.GpuwardError as error:
        await settle_after(error, world, resources.NODES, cache, action.node.name)
    else:
        cache.apply_response(answer.body)


def _undo(action: PatchNode, before: NodeView | None, node: Mapping[str, Any]) -> list[Operation]:
    """Return the JSON patch that undoes another one. Its tests are what that wrote, as the answer shows it, and not the version:
    a cordoned node gets a taint at once.
    """
    cordoned = bool(node["spec"].get("unschedulable"))
    tests: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": action.node.uid}]
    changes: list[Operation] = [{"op": "remove", "path": "/spec/unschedulable"}] if cordoned else []
    labels, annotations = (before.labels, before.annotations) if before is not None else ({}, {})
    for field, written, known in (("labels", action.labels, {**labels, **action.expect_labels}),
                                  ("annotations", action.annotations, {**annotations, **action.expect_annotations})):
        found = node["metadata"].get(field)
        if not found:
            tests.append({"op": "test", "path": f"/metadata/{field}", "value": None})
            continue
        tests += _tests(field, {key: found.get(key) for key in written})
        # What is not there though it was written is what the webhook takes away.
        changes += _changes(field, {key: known.get(key) for key, value in written.items()
                                    if found.get(key) != known.get(key) and (key in found or value is None)}, found)
    tests.append({"op": "test", "path": "/spec/unschedulable", "value": True if cordoned else None})
    return tests + changes


def _lost(action: PatchNode, node: Mapping[str, Any]) -> list[str]:
    """Name what the API server took and did not keep, as an admission webhook may have it."""
    labels, annotations = node["metadata"].get("labels") or {}, node["metadata"].get("annotations") or {}
    wanted = ((action.labels, labels), (action.annotations, annotations))
    lost = sorted(key for change, found in wanted for key, value in change.items() if found.get(key) != value)
    if action.unschedulable is not None and bool(node["spec"].get("unschedulable")) is not action.unschedulable:
        lost.append("spec.unschedulable")
    return lost


def operations(action: PatchNode) -> list[Operation]:
    """Return the JSON patch: tests first, changes after."""
    tests: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": action.node.uid}]
    tests += _tests("labels", action.expect_labels)
    changes: list[Operation] = []
    if action.has_annotations:
        tests += _tests("annotations", action.expect_annotations)
        changes += _changes("annotations", action.annotations, {**action.expect_annotations})
    elif action.annotations:
        tests.append({"op": "test", "path": "/metadata/annotations", "value": None})
        fresh = {key: value for key, value in action.annotations.items() if value is not None}
        changes.append({"op": "add", "path": "/metadata/annotations", "value": fresh})
    changes += _changes("labels", action.labels, action.expect_labels)
    if action.expect_unschedulable is not None:
        tests.append({"op": "test", "path": "/spec/unschedulable", "value": True if action.expect_unschedulable else None})
    if action.unschedulable is True:
        changes.append({"op": "add", "path": "/spec/unschedulable", "value": True})
    elif action.unschedulable is False:
        changes.append({"op": "remove", "path": "/spec/unschedulable"})
    return tests + changes


def _tests(field: str, expected: Mapping[str, str | None]) -> Iterable[Operation]:
    """Test values; a null passes for a key that is absent (kube-apiserver's JSON patch library does it so)."""
    for key, value in expected.items():
        yield {"op": "test", "path": f"/metadata/{field}/{_escape(key)}", "value": value}


def _changes(field: str, values: Mapping[str, str | None], known: Mapping[str, str | None]) -> Iterable[Operation]:
    """Set or remove keys. A removal is an error where the key is absent, so a key that may be absent is set first."""
    for key, value in values.items():
        path = f"/metadata/{field}/{_escape(key)}"
        if value is not None:
            yield {"op": "add", "path": path, "value": value}
        elif known.get(key) is not None:
            yield {"op": "remove", "path": path}
        else:
            yield {"op": "add", "path": path, "value": ""}
            yield {"op": "remove", "path": path}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
