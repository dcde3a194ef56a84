"""Nodes about which there is nothing to do, remembered from pass to pass.

Most nodes of a large fleet are the same from one pass to the next. Remembering changes nothing about a decision but the time it
takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuward.labels.policy import LabelPolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView


class Settled:
    """Remember nodes whose labels were as they should be, with the pods that were there."""

    def __init__(self) -> None:
        self._policy: LabelPolicy | None = None
        self._seen: dict[str, tuple[NodeView, Sequence[PodView]]] = {}

    def prepare(self, snapshot: Snapshot, policy: LabelPolicy) -> None:
        """Forget all nodes if another policy is asked about, and those that are gone in any case."""
        if policy != self._policy:
            self._seen = {}
        elif len(self._seen) > len(snapshot.nodes):
            self._seen = {name: seen for name, seen in self._seen.items() if name in snapshot.nodes}
        self._policy = policy

    def add(self, node: NodeView, pods: Sequence[PodView]) -> None:
        """Take a node as right."""
        self._seen[node.name] = (node, pods)

    def holds(self, node: NodeView, pods: Sequence[PodView]) -> bool:
        """Tell whether this very node was right with these very pods."""
        seen = self._seen.get(node.name)
        return seen is not None and seen[0] is node and seen[1] is pods
