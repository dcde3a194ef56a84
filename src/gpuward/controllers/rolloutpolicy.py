"""The RolloutPolicy controller: says on every RolloutPolicy whether it is followed, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from gpuward.model.actions import Action, PatchStatus
from gpuward.model.passes import Pass
from gpuward.model.record import format_time
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.kept import kept_problems
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import ending, unread_words
from gpuward.policy.rolloutpolicy import ActiveRollout

ACCEPTED = "Accepted"
"""The type of the one condition."""


class PolicyFinding(msgspec.Struct, frozen=True):
    """Hold what is to be said of a RolloutPolicy: its state, and the condition's reason and message."""

    state: str
    reason: str
    message: str


class Statuses(msgspec.Struct, frozen=True):
    """Hold what one pass over the RolloutPolicies decided."""

    actions: Sequence[Action] = ()
    wake_at: float | None = None
    problems: tuple[str, ...] = ()
    """What people have to know of: policies and annotations that cannot be followed."""


class RolloutPolicyController:
    """Report on RolloutPolicies. What they say is followed by the decisions that it concerns."""

    name = "controllers.RolloutPolicy"

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Statuses:
        """Return the status of every RolloutPolicy that has another one."""
        active = policies.policy
        actions: list[Action] = []
        for view in (each for each in snapshot.rollout_policies if not each.gone):
            finding = _finding(view, active.rollout)
            if status := _status(finding, view, now):
                actions.append(PatchStatus("RolloutPolicy", view.ref, status, why=finding.reason))
        problems = [f"{active.rollout.title}: {problem}" for problem in active.rollout.problems]
        problems += unread_words(policies)
        if active.view is not None and active.rollout.problems:
            problems += [f"ClusterPolicy {active.view.name}: {problem}" for problem in kept_problems(active.view.body)]
        return Statuses(actions, problems=tuple(problems))


class RolloutPolicyLog:
    """Log each status written, and each problem once."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(source=RolloutPolicyController.name)
        self._said: tuple[str, ...] = ()

    def __call__(self, seen: Pass[PoliciesInForce, Statuses]) -> None:
        """Take a pass."""
        if seen.decision is None:
            return
        for action in (outcome.action for outcome in seen.outcomes if not (outcome.error or outcome.dropped)):
            if isinstance(action, PatchStatus):
                self._log.info("Wrote the status of a RolloutPolicy", object=f"{action.kind}/{action.ref}", status=action.why)
        for problem in seen.decision.problems:
            if problem not in self._said:
                self._log.warning("Rollout settings cannot be followed", problem=problem)
        self._said = seen.decision.problems


def _finding(view: PolicyView, rollout: ActiveRollout) -> PolicyFinding:
    if view.deleting:
        other = f"{rollout.title} is in force" if rollout.view is not None else "the defaults are in force"
        return PolicyFinding("ignored", "Deleting", f"{ending(view)}: {other}")
    assert rollout.view is not None
    if view.uid != rollout.view.uid:
        return PolicyFinding("ignored", "Ignored", f"{rollout.title} is older and in force")
    if rollout.problems:
        told = "; ".join(str(problem) for problem in rollout.problems)
        goes_on = "No upgrade starts; nodes in progress go on under the settings before."
        return PolicyFinding("invalid", "Invalid", f"{told}. {goes_on}")
    return PolicyFinding("active", "InForce", "driver upgrades follow it")


def _status(finding: PolicyFinding, view: PolicyView, now: float) -> Mapping[str, Any] | None:
    """Return the status to write, or None when the current one says the same."""
    current = view.body.get("status") or {}
    before: Mapping[str, Any] = next((one for one in current.get("conditions") or () if one.get("type") == ACCEPTED), {})
    holds = "True" if finding.state == "active" else "False"
    condition = {
        "type": ACCEPTED, "status": holds, "reason": finding.reason, "message": finding.message,
        "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == holds else format_time(now),
        "observedGeneration": view.generation,
    }
    wanted = {"state": finding.state, "conditions": [condition]}
    return None if wanted == current else wanted
