"""The ledger of admissions: which nodes a leader was granted to start before it touched the first of them.

A precondition on one node says nothing about another, so two leaders, an old one whose last writes are still on their way and a
new one, could together take more nodes than the limits allow. Before it starts nodes a leader writes their names into the
election's Lease, which only the leader can; whoever leads counts them as under way. A grant is for a node as it was: its stamp
covers what the admission's patch has as precondition, so once that has changed, the patch fails and the grant means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gpuward import names
from gpuward.model.actions import Action, GrantNodes
from gpuward.model.reading import read_json
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.upgrade.progress import NodeProgress
from gpuward.upgrade.refused import rests

MOST_BYTES: Final = 128 * 1024
"""How long the ledger may get: all annotations of an object together may have twice as much, and others may write some."""
LATE: Final = 8
"""How often a write is refused, ever later, until no request of an earlier leader can be on its way any more: that takes more
than a minute and a half, and kube-apiserver ends each request within one minute."""


def stamp(node: NodeView) -> str:
    """Return a digest of what the patch that admits a node has as precondition."""
    what = (node.uid, node.upgrade_label, node.annotations.get(names.UPGRADE_RECORD, ""))
    return hashlib.blake2s("\n".join(what).encode(), digest_size=6).hexdigest()


def open_grants(snapshot: Snapshot, now: float) -> frozenset[str]:
    """Return the nodes that may still be started by a patch on its way.

    Not those whose patch was refused: the others need not wait for them. Where an earlier leader was granted them, a patch of
    it may still come, for a while.
    """
    return frozenset(name for name in _matching(snapshot) if not _was_refused(name, snapshot, now))


def _matching(snapshot: Snapshot) -> Iterator[str]:
    nodes = snapshot.nodes
    return (name for name, granted in (snapshot.grants or {}).items() if name in nodes and stamp(nodes[name]) == granted)


def _was_refused(name: str, snapshot: Snapshot, now: float) -> bool:
    refusal = snapshot.refused_writes.get(snapshot.nodes[name].uid)
    return refusal is not None and rests(refusal, now) and (name not in snapshot.inherited or refusal.count >= LATE)


class Room:
    """Count how much more the ledger may hold: the grants that stay, and those given now."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        kept = open_grants(snapshot, now) if snapshot.grants else frozenset()
        self._left = MOST_BYTES - len(write_grants({name: stamp(snapshot.nodes[name]) for name in kept}))

    def take(self, node: NodeView) -> bool:
        """Tell whether there is room for one more node, and take it."""
        size = len(msgspec.json.encode({node.name: stamp(node)})) - 1  # a comma is shorter than the braces
        if size > self._left:
            return False
        self._left -= size
        return True


def fitting(wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return as many grants, with their stamps, as the ledger can hold."""
    found: dict[str, str] = {}
    left = MOST_BYTES
    for name, stamped in wanted:
        left -= len(msgspec.json.encode({name: stamped})) - 1
        if left > 0:
            found[name] = stamped
    return found


def may_be_granted(node: NodeView) -> bool:
    """Tell whether a node's stamp is its own: one without a memory of ours looks the same each time it is new."""
    return node.record is not None


def grant(snapshot: Snapshot, wanted: Iterable[NodeView], under_way: bool, now: float) -> tuple[Action, ...]:
    """Return the action that enters nodes, and takes out those whose grant means nothing any more.

    It waits for company as long as a rollout goes on: grants without meaning do no harm. Those that were refused would mean
    something again as soon as their write is repeated.
    """
    still_open = open_grants(snapshot, now)
    add = {node.name: stamp(node) for node in wanted}
    drop = tuple(sorted(name for name in snapshot.grants or {} if name not in still_open and name not in add))
    urgent = not add and any(name in drop for name in _matching(snapshot))
    if not add and not urgent and (under_way or not drop):
        return ()
    return (GrantNodes(add, drop, "they are started next" if add else "they have started", urgent),)


def withdraw(path: NodeProgress) -> NodeProgress:
    """Write a node's memory anew, so that a patch on its way, by which an earlier leader would start it, fails."""
    node = path.node
    record = msgspec.structs.replace(node.record, since=node.record.since + 0.001)
    return msgspec.structs.replace(path, node=msgspec.structs.replace(node, record=record), adopted=True)


def read_grants(text: str) -> Mapping[str, str]:
    """Return the grants that the Lease's annotation holds; garbage grants nothing."""
    try:
        return read_json(text, dict[str, str])
    except ValueError:
        return {}


def write_grants(grants: Mapping[str, str]) -> str:
    """Return the annotation's text."""
    return msgspec.json.encode(dict(sorted(grants.items()))).decode()
