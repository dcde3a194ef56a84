"""What one node's facts come to, kept from pass to pass for as long as neither they nor the time change it.

Most nodes of a large fleet are the same from one pass to the next. Keeping changes nothing about a plan but the time it takes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuward.model.plan import Hold, NodeStatus
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.gates import NOBODY, NODE_GATES
from gpuward.upgrade.gates.fleet import Standing, standing
from gpuward.upgrade.gathering import Gathered
from gpuward.upgrade.queueing import Turn, turn
from gpuward.upgrade.walk import Path

NO_TURN: Turn = (0, 0, 0, 0.0, "")


class Judged(msgspec.Struct, frozen=True):
    """Hold what was decided about one node alone."""

    before: NodeFacts
    path: Path
    standing: Standing
    turn: Turn
    """Its sort key in the queue, if it waits there."""
    hold: Hold | None
    """What a gate that looks at nothing but the node holds it for, if it waits in the queue."""
    shown: NodeStatus
    """The node as people see it, if the fleet does not hold it."""
    waits: bool
    """Whether the node waits to be admitted."""
    quiet: bool
    """Whether there is nothing to do about the node."""

    def held(self, hold: Hold, turn: int) -> NodeStatus:
        """Return the node as people see it, held in its place of the queue."""
        shown = self.shown
        return NodeStatus(shown.state, shown.since, hold, shown.label, turn)


def judge(before: NodeFacts, path: Path, policy: UpgradePolicy) -> Judged:
    """Return all that follows about a node from its own path."""
    node = path.node
    waits = node.state is State.UPGRADE_REQUIRED and path.hold is None
    hold = next((held for gate in NODE_GATES if (held := gate(node, NOBODY, policy)) is not None), None) if waits else None
    state = node.state if node.node.state is not None else None
    return Judged(
        before=before,
        path=path,
        standing=standing(before, node, policy),
        turn=turn(node) if waits else NO_TURN,
        hold=hold,
        shown=NodeStatus(state, node.record.since, path.hold, node.node.upgrade_label),
        waits=waits,
        quiet=not (path.entered or path.adopted or path.annotations or path.actions),
    )


class Memory(Gathered):
    """Keep facts, and what they came to, from one pass to the next."""

    def __init__(self) -> None:
        super().__init__()
        self._judged: dict[str, Judged] = {}
        self._latest = 0.0

    def judged(self, node: NodeFacts, decision: Callable[[], Path], policy: UpgradePolicy, now: float) -> Judged:
        """Return what a node comes to: as before if its facts are the same ones and its time has not come."""
        if now < self._latest:  # the clock was set back, and the times of what is kept are of another one
            self._judged.clear()
        self._latest = now
        name = node.node.name
        known = self._judged.get(name)
        if known is not None and known.before is node and (known.path.retry_at is None or now < known.path.retry_at):
            return known
        judged = judge(node, decision(), policy)
        if judged.quiet:
            self._judged[name] = judged
        else:
            self._judged.pop(name, None)
        return judged
