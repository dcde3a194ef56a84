"""The node labelling controller: tells nodes with GPUs which operands they run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from gpuward.controllers.policies import PolicyReader
from gpuward.labels.decide import decide_labels, discovery_lost
from gpuward.labels.policy import label_policy
from gpuward.model.actions import Action
from gpuward.model.snapshot import Snapshot
from gpuward.ports import Outcome


class Labels(msgspec.Struct, frozen=True):
    """Hold what the labelling controller decided."""

    actions: Sequence[Action] = ()
    wake_at: float | None = None


class LabelController:
    """Label nodes. Without a valid ClusterPolicy the labels stay as they are."""

    name = "controllers.NodeLabeling"

    def __init__(self, reader: PolicyReader) -> None:
        self._reader = reader
        self._log = structlog.get_logger(source=self.name)
        self._lost: frozenset[str] = frozenset()

    def decide(self, snapshot: Snapshot, now: float) -> Labels:
        """Return a patch for each node whose labels differ from what they should be."""
        policy = self._reader.read(snapshot).valid
        return Labels(decide_labels(snapshot, label_policy(policy))) if policy is not None else Labels()

    def report(self, snapshot: Snapshot, decision: Labels, outcomes: Sequence[Outcome]) -> None:
        """Log what changed, and nodes whose discovery labels are missing, once."""
        for outcome in outcomes:
            if not (outcome.error or outcome.dropped):
                self._log.info("Labelled node", node=outcome.action.lane, why=outcome.action.why)
        lost = frozenset(
            name for name, node in snapshot.nodes.items() if discovery_lost(node, snapshot.pods.get(name, ()))
        )
        if fresh := sorted(lost - self._lost):
            self._log.warning("Nodes lost their discovery labels; their operands stay", nodes=fresh[:10], count=len(fresh))
        self._lost = lost
