"""`gpuward retry` and `gpuward skip`: what a person says about the upgrade of single nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gpuward import names
from gpuward.cli.rollouts import ATTEMPTS, Lines, Rollouts, all_nodes, read_rollouts
from gpuward.cli.unknown import unknown_node
from gpuward.errors import Conflict, InputError, NotFound
from gpuward.execute.nodes import operations
from gpuward.kube import resources
from gpuward.kube.http.client import Client
from gpuward.labels.discovery import has_gpu
from gpuward.model.actions import PatchNode
from gpuward.model.record import Failure
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.undrainable import GivenUp
from gpuward.model.views import NodeView
from gpuward.wire.nodes import node_view

WITHOUT_GPU = "no GPU is known there, so it has no driver now"


class Deed(msgspec.Struct, frozen=True):
    """Hold what is to be done about one node: a label to be set, or removed (None), and the words for it."""

    told: str
    key: str = ""
    """Empty where it is so already."""
    value: str | None = None
    annotation: bool = False
    """Whether it is an annotation, and no label."""

    @property
    def kind(self) -> str:
        return "annotation" if self.annotation else "label"

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is to be written."""
        return not self.key


Judge = Callable[[NodeView], Deed]


async def retry_nodes(client: Client, wanted: Iterable[str], *, dry_run: bool) -> Lines:
    """Have failed nodes tried again, and say of each what was done; nothing is written unless all of them can be.

    Raises:
        InputError: there is no such node, it has not failed, or upgrades are off.
        Conflict: somebody else changes its labels all the time.
    """
    rollouts = await read_rollouts(client)
    async for line in _do(client, wanted, lambda node: _retry(node, rollouts), dry_run=dry_run):
        yield line


async def skip_nodes(client: Client, wanted: Iterable[str], *, undo: bool, dry_run: bool) -> Lines:
    """Have nodes left alone by driver upgrades, or no longer, and say of each what was done.

    Raises:
        InputError: there is no such node.
        Conflict: somebody else changes its labels all the time.
    """
    async for line in _do(client, wanted, _unskip if undo else _skip, dry_run=dry_run):
        yield line


async def _do(client: Client, wanted: Iterable[str], judge: Judge, *, dry_run: bool) -> Lines:
    read = [await _node(client, name) for name in dict.fromkeys(wanted)]
    deeds = [(node, judge(node)) for node in read]
    for node, deed in deeds:
        if deed.is_idle:
            yield f"{node.name} {deed.told}: nothing is written"
        elif dry_run:
            label = f"{deed.key}-" if deed.value is None else f"{deed.key}={deed.value}"
            yield f"{node.name} would get the {deed.kind} {label}; a dry run writes nothing"
        else:
            yield f"{node.name} {(await _write(client, node, deed, judge)).told}"


async def _node(client: Client, name: str) -> NodeView:
    try:
        return node_view((await client.get(resources.NODES, name)).body)
    except NotFound:
        raise unknown_node(name, [node.name for node in await all_nodes(client)]) from None


async def _write(client: Client, node: NodeView, deed: Deed, judge: Judge) -> Deed:
    """Patch a node as it was read, or judge it anew if somebody else was faster; return what was done in the end."""
    for attempt in range(1, ATTEMPTS + 1):
        patch = _patch(node, deed)
        try:
            await client.patch_json(resources.NODES, node.name, operations(patch))
        except Conflict:
            if attempt == ATTEMPTS:
                raise
        else:
            return deed
        node = await _node(client, node.name)
        deed = judge(node)
        if deed.is_idle:
            return msgspec.structs.replace(deed, told=f"{deed.told}: nothing is written")
    raise AssertionError


def _patch(node: NodeView, deed: Deed) -> PatchNode:
    state, there = node.labels.get(names.UPGRADE_STATE), node.annotations if deed.annotation else node.labels
    wanted, expected = {deed.key: deed.value}, {deed.key: there.get(deed.key)}
    if deed.annotation:
        return PatchNode(node.ref, annotations=wanted, expect_labels={names.UPGRADE_STATE: state}, expect_annotations=expected,
                         has_annotations=node.has_annotations)
    return PatchNode(node.ref, labels=wanted, expect_labels={**expected, names.UPGRADE_STATE: state})


def _retry(node: NodeView, rollouts: Rollouts) -> Deed:
    """Say what is to be done about a node that is to be tried again. Raises InputError for one that cannot be."""
    if (given_up := _given_up(node)) is not None:
        if (off := _off(node, rollouts)) is not None:
            raise InputError("NODE", node.name, off)
        told = f"is tried again, after its pods could not be moved: {given_up.cause}; next: {_turn(node)}"
        return Deed(told, names.UPGRADE_REQUESTED, "true", annotation=True)
    if node.state is State.UPGRADE_REQUIRED:
        asks = f"`gpuward explain {node.name}` says what it waits for"
        return Deed(f"is to be upgraded already ({State.UPGRADE_REQUIRED}), and {asks}")
    failure = node.record.failure if node.record is not None else None
    # In a pause the operator takes the label of a failed node away; what failed is in its record.
    has_failed = node.state is State.FAILED or (not node.upgrade_label and node.record is not None
                                                and node.record.state is State.FAILED and failure is not None)
    if not has_failed:
        raise InputError("NODE", node.name, f"only a node that has failed can be tried again, and {_what_it_is(node)}")
    if (off := _off(node, rollouts)) is not None:
        raise InputError("NODE", node.name, off)
    told = f"is tried again ({State.FAILED} -> {State.UPGRADE_REQUIRED}){_failed(failure)}; next: {_turn(node)}"
    return Deed(told, names.UPGRADE_STATE, str(State.UPGRADE_REQUIRED))


def _given_up(node: NodeView) -> GivenUp | None:
    """Return that the pods of a node could not be moved, so that it was given back or quarantined."""
    asked = node.annotations.get(names.UPGRADE_REQUESTED) == "true"
    return node.record.given_up if node.record is not None and not asked else None


def _what_it_is(node: NodeView) -> str:
    if node.state in IN_PROGRESS:
        return f"this one is being upgraded now ({node.state}): `gpuward explain {node.name}` says what it waits for"
    if not node.upgrade_label:
        return "this one has no upgrade state"
    if node.state is None:
        return f"this one has the state {node.upgrade_label}, which is none of the known ones"
    return f"this one is in {node.state}"


def _off(node: NodeView, rollouts: Rollouts) -> str | None:
    """Say why a node would not be tried again now."""
    rollout = rollouts.of(node)
    if rollout is None:
        return "there is no ClusterPolicy or NVIDIADriver by which it is upgraded"
    if rollout.is_on:
        return None
    fix = f"`{rollout.resume}` first" if rollout.is_paused else f"set {rollout.field} to true first"
    return f"{rollout.title} has upgrades off, so it would not be tried again: {fix}"


def _failed(failure: Failure | None) -> str:
    if failure is None:
        return ""
    times = "once" if failure.attempts == 1 else f"{failure.attempts} times"
    return f", after it failed {times}, last in {failure.state}: {failure.cause}"


def _turn(node: NodeView) -> str:
    if _is_skipped(node):
        return f"it is skipped, so it waits until `gpuward skip --undo {node.name}`"
    return f"it starts when its turn comes, and `gpuward explain {node.name}` says what it waits for"


def _skip(node: NodeView) -> Deed:
    if _is_skipped(node):
        return Deed("is skipped already")
    back = f"`gpuward skip --undo {node.name}`"
    later = f"no later upgrade of {node.name} starts until {back}"
    under_way = f"is skipped; next: its upgrade is under way ({node.state}) and goes on, and {later}"
    goes_on = node.state in IN_PROGRESS and _given_up(node) is None
    told = under_way if goes_on else f"is skipped; next: no driver upgrade of it starts until {back}"
    return Deed(f"{told}{'' if _may_have_driver(node) else f'; {WITHOUT_GPU}'}", names.UPGRADE_SKIP, "true")


def _unskip(node: NodeView) -> Deed:
    if not _is_skipped(node):
        return Deed("is not skipped")
    labels = {key: value for key, value in node.labels.items() if key != names.UPGRADE_SKIP}
    return Deed(f"is no longer skipped; next: {_next(msgspec.structs.replace(node, labels=labels))}", names.UPGRADE_SKIP)


def _next(node: NodeView) -> str:
    """Say what becomes of a node that is skipped no longer."""
    if node.state is State.UPGRADE_REQUIRED:
        return _turn(node)
    if node.state is State.FAILED or _given_up(node) is not None:
        return f"its last upgrade did not succeed, and `gpuward explain {node.name}` says when it is tried again"
    if node.state in IN_PROGRESS:
        return f"its upgrade is under way ({node.state}) and goes on"
    return "it is upgraded with the next new driver" if _may_have_driver(node) else WITHOUT_GPU


def _may_have_driver(node: NodeView) -> bool:
    return bool(node.gpu_present or has_gpu(node) or node.upgrade_label)


def _is_skipped(node: NodeView) -> bool:
    return node.labels.get(names.UPGRADE_SKIP) == "true"
