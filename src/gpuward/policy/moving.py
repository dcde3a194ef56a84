"""Nodes that no NVIDIADriver has, and whose labels are about to say that one has them: what becomes of them is open until then.

Such a label may be refused, or have no answer, for ever. That node waits, is in the totals and says why; no other is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from gpuward import names
from gpuward.model.owners import NodeOwner, name_of
from gpuward.model.placement import Placements, Placing
from gpuward.model.snapshot import Snapshot


def nobodys_that_move(owners: Mapping[str, NodeOwner], snapshot: Snapshot, placing: Placing) -> frozenset[str]:
    """Return the nodes without an owner, or with one that is gone, whose owner is about to be changed at once."""
    placements = Placements(snapshot, placing)
    moving: set[str] = set()
    for name, wanted in owners.items():
        node = snapshot.nodes[name]
        current = node.labels.get(names.DRIVER_OWNER, "")
        moves = name_of(wanted, current) != current and not node.deleting and placing.claim(current) is None
        if moves and placements.free(node, node.labels, snapshot.pods.get(name, ())):
            moving.add(name)
    return frozenset(moving)


def with_unsettled(snapshot: Snapshot, waiting: Set[str]) -> Snapshot:
    """Return a snapshot in which some more nodes wait for the answer to a change, unless they say already that it is refused."""
    begun = {
        name: node.record.since if node.record is not None else node.created
        for name in waiting if (node := snapshot.nodes[name]).uid not in snapshot.refused_writes
    }
    return msgspec.structs.replace(
        snapshot, unsettled=snapshot.unsettled | waiting, unanswered={**begun, **snapshot.unanswered})
