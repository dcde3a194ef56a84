"""The controller of ClusterPolicies: keeps the cluster's GPU stack as the active one describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from gpuward.controllers.lines import alike, headline, named
from gpuward.model.actions import (
    ApplyObject,
    DeleteObject,
    DeletePod,
    PatchAnnotations,
    PatchLabels,
    PatchNode,
    ReleasePod,
    SetOwner,
)
from gpuward.model.driver import driver_daemonsets
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.operands.decide import OperandMemory, Reconciliation, decide
from gpuward.operands.rollout import beside, rollout_of, warned
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import departures, endings, unfollowed_settings, unread_words
from gpuward.upgrade.limits import unbounded

_Seen = tuple[str, int, frozenset[str]]
"""The ClusterPolicy in force, its generation, and the driver DaemonSets that stay."""
ON_MANY: Final[Mapping[type, str]] = {
    PatchNode: "Changed labels of {n:node|nodes}",
    DeletePod: "Deleted {n:driver pod|driver pods}",
    ReleasePod: "Took {n:driver pod from its DaemonSet|driver pods from their DaemonSet}",
}
"""What is said of writes that may be the same for many nodes."""


class ClusterPolicyController:
    """Keep the cluster's GPU stack as the active ClusterPolicy describes it."""

    name = "controllers.ClusterPolicy"

    def __init__(self, images: Mapping[str, str]) -> None:
        self._images = images
        self._memory = OperandMemory()
        self._plan: Plan | None = None
        """What the upgrade controller decided last, if it ever knew a node."""
        self._seen: _Seen | None = None
        """What it decided that on."""

    def follow(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Let the status say how the driver upgrade stands under the plan of a pass, from the next pass here on."""
        if seen.decision is not None and (seen.decision.nodes or self._plan is not None):
            self._plan, self._seen = seen.decision, _seen(seen.snapshot, seen.policies)

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Reconciliation:
        """Return the writes that the active policy needs, and the status of every policy."""
        rollout = None
        if self._plan is not None and self._seen == _seen(snapshot, policies):
            limits = unbounded(policies.upgrades, self._plan, snapshot)
            rollout = warned(rollout_of(self._plan), (*limits, *unfollowed_settings(policies), *unread_words(policies)))
            rollout = beside(rollout, "; ".join((*endings(policies, snapshot), *departures(policies, snapshot))))
        return decide(snapshot, policies.policy, rollout, self._images, now, self._memory)


def _seen(snapshot: Snapshot, policies: PoliciesInForce) -> _Seen:
    """Return what a plan has to be about for the status to tell of it: by an older one nodes would be up to date with a driver
    that nobody asks for any more.
    """
    view = policies.policy.view
    living = frozenset(ds.uid for ds in driver_daemonsets(snapshot) if not ds.deleting)
    return ("", 0, living) if view is None else (view.uid, view.generation, living)


class ClusterPolicyLog:
    """Log each write and each change of the verdict."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(source=ClusterPolicyController.name)
        self._said = ""
        self._forbidden: frozenset[str] = frozenset()

    def __call__(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass."""
        decision = seen.decision
        if decision is None:
            return
        log_writes(self._log, seen.outcomes)
        self._log_rights(seen.policies.policy.rollout.lacks(seen.snapshot), decision.rights)
        verdict = decision.verdict
        if verdict is None and not all(view.deleting for view in seen.snapshot.policies):
            return
        said = verdict.reason if verdict else "absent"
        if said != self._said:
            self._said = said
            log = self._log.info if verdict is None or verdict.ready else self._log.warning
            details = {"waiting": dict(decision.waiting)} if decision.waiting else {}
            log("ClusterPolicy " + (verdict.state if verdict else said), message=verdict.message if verdict else "", **details)

    def _log_rights(self, forbidden: frozenset[str], told: str) -> None:
        if forbidden - self._forbidden:
            self._log.warning("Rights are missing", message=told)
        elif self._forbidden and not forbidden:
            self._log.info("No right is missing any more")
        self._forbidden = forbidden


def log_writes(log: Any, outcomes: tuple[Outcome, ...]) -> None:
    """Log each write of an object, and in one line the same write to many nodes; statuses have lines of their own."""
    written = [outcome.action for outcome in outcomes if outcome.written]
    for action in written:
        if isinstance(action, ApplyObject | DeleteObject | PatchAnnotations | PatchLabels | SetOwner):
            log.info(f"{_verb(action)} {action.kind}", object=action.lane, why=action.why)
    on_many = ((type(each), each.why, each.lane if isinstance(each, PatchNode) else str(each.pod)) for each in written
               if isinstance(each, PatchNode | DeletePod | ReleasePod))
    for (kind, why), names in alike(((kind, why), name) for kind, why, name in on_many).items():
        log.info(headline(ON_MANY[kind], names), **named(names, "node" if kind is PatchNode else "pod"), why=why)


def _verb(action: ApplyObject | DeleteObject | PatchAnnotations | PatchLabels | SetOwner) -> str:
    if isinstance(action, ApplyObject):
        return "Replaced" if action.version else "Created"
    if isinstance(action, PatchLabels):
        return "Labelled"
    if isinstance(action, SetOwner):
        return "Set the owners of"
    return "Deleted" if isinstance(action, DeleteObject) else "Annotated"
