"""A node whose GPUs have not got the MIG layout that its label asks for: the MIG manager says so by labels alone.

NVIDIA's takes the device plugin and others off the node while it works, and leaves it so where one of their pods does not end
(NVIDIA/gpu-operator issue 2833); whoever looks at DaemonSets sees that all pods that are wanted are ready.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from gpuward import names
from gpuward.model.listing import MOST_NAMED, listed
from gpuward.model.reasons import Reason
from gpuward.model.views import NodeView

PATIENCE: Final = 900.0
"""Seconds in which a layout may be applied: the MIG manager may have to restart the node for it."""
FAILED: Final = "failed"
DONE: Final = "success"
PAUSED: Final = "paused-for-mig-change"
"""The value that the MIG manager gives to labels of operands while it works."""


_FIRST: Final = names.DEPLOY_PLUGIN.removeprefix(names.DEPLOY_PREFIX)
"""What is named first: without it no new GPU pod runs."""


class MigNotApplied(msgspec.Struct, frozen=True):
    """Wait for the MIG layout of a node."""

    reason: ClassVar = Reason.MIG_NOT_APPLIED
    layout: str
    """As the label asks for it; empty where it asks for none any more."""
    state: str
    paused: tuple[str, ...] = ()
    """Operands that are kept off the node meanwhile."""

    def told(self) -> dict[str, object]:
        """Return the words for what the sentence leaves open."""
        how = {FAILED: "could not be applied", DONE: "is applied"}.get(self.state, "is not applied yet")
        away = f"; the MIG manager keeps {listed(self.paused, MOST_NAMED)} off this node meanwhile" if self.paused else ""
        if self.state == DONE:  # it ended in between; the next one finds the layout applied, and looks no further
            away = f", but the MIG manager has not given {listed(self.paused, MOST_NAMED)} back to this node"
        return {"layout": self.layout or "of before", "how": how, "label": names.MIG_STATE, "state": self.state, "away": away}


def without_layout(node: NodeView, now: float) -> tuple[MigNotApplied | None, float | None]:
    """Return what a node's labels say of a layout that it has not got, None where all is well or may just take its time; and when
    that is over by time alone.
    """
    state = node.labels.get(names.MIG_STATE, "")
    if not state and PAUSED not in node.labels.get(names.DEPLOY_PLUGIN, ""):
        return None, None
    layout, paused = node.labels.get(names.MIG_CONFIG, ""), paused_operands(node)
    if not paused and (state != FAILED or not layout):
        return None, None
    if state != FAILED and now < (due := node.mig_since + PATIENCE):
        return None, due
    return MigNotApplied(layout, state, paused), None


def paused_operands(node: NodeView) -> tuple[str, ...]:
    """Return the operands that the MIG manager keeps off a node."""
    found = [key.removeprefix(names.DEPLOY_PREFIX) for key, value in node.labels.items()
             if key.startswith(names.DEPLOY_PREFIX) and PAUSED in value]
    return tuple(sorted(found, key=lambda name: (name != _FIRST, name)))
