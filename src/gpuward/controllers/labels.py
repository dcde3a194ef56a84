"""The node labelling controller: tells nodes with GPUs which operands they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from gpuward.controllers.lines import NAMED, alike, headline, named
from gpuward.controllers.undone import UndoneLabels
from gpuward.execute.contested import Rival
from gpuward.labels.decide import Labelling, decide_labels
from gpuward.labels.discovery import KeptOperands
from gpuward.labels.policy import label_policy, remembered_policy
from gpuward.labels.settled import Settled
from gpuward.model.actions import Action, PatchNode
from gpuward.model.explain import sentence
from gpuward.model.passes import Pass
from gpuward.model.plan import Hold
from gpuward.model.removal import DriverKept
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView
from gpuward.model.workloads import OperandsKept, Workload, WorkloadKept, workload_of
from gpuward.policy.nvidiadrivers import PoliciesInForce


class Labels(msgspec.Struct, frozen=True):
    """Hold what the labelling controller decided."""

    labelling: Labelling = Labelling()

    @property
    def actions(self) -> Sequence[Action]:
        """Return the patches."""
        return self.labelling.patches

    @property
    def wake_at(self) -> float | None:
        """Return when a node's grace ends."""
        return self.labelling.wake_at


class LabelController:
    """Label nodes: under an invalid ClusterPolicy as under the last valid one, and without any not at all."""

    name = "controllers.NodeLabeling"

    def __init__(self) -> None:
        self._settled = Settled()

    def decide(self, snapshot: Snapshot, drivers: PoliciesInForce, now: float) -> Labels:
        """Return a patch for each node whose labels differ from what they should be."""
        active = drivers.policy
        if drivers.in_force and not drivers.known:
            return Labels()
        if active.valid is not None:
            policy = label_policy(active.valid, drivers.claims, settings=active.upgrades.rollout)
        elif active.last_labels is not None:
            policy = remembered_policy(active.last_labels, drivers.claims, settings=active.upgrades.rollout)
        else:
            return Labels()
        return Labels(decide_labels(snapshot, policy, now, self._settled))


class _Change(NamedTuple):
    """Hold what a patch does to a node, so that nodes are told together to which the same is done."""

    given: tuple[tuple[str, str], ...]
    taken: tuple[str, ...]
    annotations: tuple[str, ...]
    why: str


def _change(patch: PatchNode) -> _Change:
    labels = sorted(patch.labels.items())
    given = tuple((key, value) for key, value in labels if value is not None)
    return _Change(given, tuple(key for key, value in labels if value is None), tuple(sorted(patch.annotations)), patch.why)


class LabelLog:
    """Log what changed, in one line what is done to many nodes, nodes whose labels others change back, and those that keep their
    operands though discovery sees no GPU there, once for each reason.
    """

    def __init__(
        self, tell: Callable[[NodeView, str], None] = lambda node, message: None,
        rival: Callable[[str, str], Rival | None] = lambda node, label: None,
    ) -> None:
        """Take what reports an event about a node, and what knows who undid a label of it."""
        self._log = structlog.get_logger(source=LabelController.name)
        self._kept: Mapping[str, KeptOperands] = {}
        self._troubles: Mapping[str, str] = {}
        self._used: Mapping[str, WorkloadKept | OperandsKept | DriverKept] = {}
        self._undone = UndoneLabels()
        self._tell = tell
        self._rival = rival

    def __call__(self, seen: Pass[PoliciesInForce, Labels]) -> None:
        """Take a pass."""
        if seen.decision is None:
            return
        self._log_patches([outcome.action for outcome in seen.outcomes if outcome.written])
        self._log_undone(seen)
        self._log_kept(seen.snapshot, seen.decision.labelling.kept)
        self._log_used(seen.snapshot, seen.decision.labelling.used)
        self._log_troubles(seen.snapshot, seen.decision.labelling.troubles)

    def _log_patches(self, patches: Sequence[Action]) -> None:
        changes = ((_change(patch), patch.node.name) for patch in patches if isinstance(patch, PatchNode))
        for change, nodes in alike(changes).items():
            what = "labels" if change.given or change.taken else "annotations"
            fields = {"set": dict(change.given), "removed": list(change.taken), "annotations": list(change.annotations)}
            self._log.info(headline(f"Changed {what} of {{n:node|nodes}}", nodes), **named(nodes), why=change.why,
                           **{key: value for key, value in fields.items() if value})

    def _log_undone(self, seen: Pass[PoliciesInForce, Labels]) -> None:
        """Tell of each node on which labels are changed back, and in one line of the log what is the same for many."""
        told: dict[tuple[str, str], dict[str, str]] = {}
        for undone in self._undone.take(seen.outcomes, seen.at):
            rival = self._rival(undone.node, undone.key)
            message = undone.told(rival)
            told.setdefault((undone.shown, rival.manager if rival else ""), {})[undone.node] = message
            if (node := seen.snapshot.nodes.get(undone.node)) is not None:
                self._tell(node, message)
        for messages in told.values():
            self._log.warning("Labels are changed back", **named(list(messages)), reason=next(iter(messages.values())))

    def _log_kept(self, snapshot: Snapshot, kept: Mapping[str, KeptOperands]) -> None:
        out, was_out = KeptOperands.OUTAGE in kept.values(), KeptOperands.OUTAGE in self._kept.values()
        if out and not was_out:
            total = sum(node.gpu_present for node in snapshot.nodes.values())
            self._log.warning("Discovery outage: nodes lost their discovery labels together; their operands stay until "
                              "these are back", nodes=sorted(kept)[:NAMED], count=len(kept), total=total)
        elif was_out and not out:
            self._log.info("The discovery outage is over")
        for why in KeptOperands:
            fresh = sorted(name for name, found in kept.items() if found is why and self._kept.get(name) is not why)
            if fresh and why is not KeptOperands.OUTAGE:
                self._log.warning("Discovery sees no GPU on nodes that had some; their operands stay", why=str(why),
                                  nodes=fresh[:NAMED], count=len(fresh))
        self._kept = kept

    def _log_used(self, snapshot: Snapshot, used: Mapping[str, WorkloadKept | OperandsKept | DriverKept]) -> None:
        """Tell of each node once that it waits to be for something else, or nothing, and once more where that is something else
        again. The upgrade tells of nodes with a driver for containers.
        """
        before = {name: _wish(what) for name, what in self._used.items()}
        for name, what in used.items():
            if (name not in before or before[name] != _wish(what)) and (node := snapshot.nodes.get(name)) is not None:
                message = f"The node {sentence(Hold(what))}"
                self._log.warning("A node's operands have to stay for now", node=name, reason=message)
                if workload_of(node.labels) is not Workload.CONTAINER:
                    self._tell(node, message)
        self._used = used

    def _log_troubles(self, snapshot: Snapshot, troubles: Mapping[str, str]) -> None:
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble and (node := snapshot.nodes.get(name)) is not None:
                message = f"its labels could not be decided about, which is a bug in gpuward: {trouble}"
                self._log.warning("Node is held", node=name, reason=message)
                self._tell(node, message)
        self._troubles = troubles


def _wish(what: WorkloadKept | OperandsKept | DriverKept) -> tuple[Workload, Workload] | None:
    """Return what a node is for and is to be for; None where it is to be for nothing."""
    return (what.workload, what.wanted) if isinstance(what, WorkloadKept) else None
