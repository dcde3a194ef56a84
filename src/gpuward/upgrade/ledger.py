"""The ledger of admissions: which nodes a leader was granted to start before it touched the first of them.

A precondition on one node says nothing about another, so two leaders, an old one whose last writes are still on their way and a
new one, could together take more nodes than the limits allow. Before it starts nodes a leader writes their names into the
election's Lease, which only the leader can; whoever leads counts them as under way. A grant is for a node as it was: its stamp
covers what the admission's patch has as precondition, so once that has changed, the patch fails and the grant means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from gpuward import names
from gpuward.model.actions import Action, GrantNodes
from gpuward.model.reading import read_json
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.upgrade.walk import Path

MOST_GRANTS = 1000
"""Nodes that are granted at once: the ledger is an annotation, and those have a size."""


def stamp(node: NodeView) -> str:
    """Return a digest of what the patch that admits a node has as precondition."""
    what = (node.uid, node.upgrade_label, node.annotations.get(names.UPGRADE_RECORD, ""))
    return hashlib.blake2s("\n".join(what).encode(), digest_size=6).hexdigest()


def open_grants(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes that may still be started by a patch on its way."""
    return frozenset(name for name, granted in (snapshot.grants or {}).items()
                     if name in snapshot.nodes and stamp(snapshot.nodes[name]) == granted)


def may_be_granted(node: NodeView) -> bool:
    """Tell whether a node's stamp is its own: one without a memory of ours looks the same each time it is new."""
    return node.record is not None


def grant(snapshot: Snapshot, wanted: Iterable[NodeView], under_way: bool) -> tuple[Action, ...]:
    """Return the action that enters nodes, and takes out those whose grant means nothing any more.

    It waits for company as long as a rollout goes on: grants without meaning do no harm.
    """
    still_open = open_grants(snapshot)
    add = {node.name: stamp(node) for node in wanted}
    drop = tuple(sorted(name for name in snapshot.grants or {} if name not in still_open and name not in add))
    if not add and (under_way or not drop):
        return ()
    return (GrantNodes(add, drop, why="they are started next" if add else "they have started"),)


def withdraw(path: Path) -> Path:
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
