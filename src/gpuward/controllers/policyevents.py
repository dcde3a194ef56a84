"""Say on the ClusterPolicy how the driver upgrade of the fleet goes: one Kubernetes event whenever that changes."""

from __future__ import annotations

from typing import Final

from gpuward import names
from gpuward.kube.events import NORMAL, WARNING, About, EventRecorder
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import AT_REST
from gpuward.operands.rollout import reason_of, rollout_of
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import refusals

BLOCKED: Final = "Blocked"
LASTS: Final = 60.0
"""Seconds of a standstill after which it is said: a rollout comes to one and goes on all the time."""
AGAIN: Final = 600.0
"""Seconds after which the next standstill for the same reasons is said: a budget may have no room for each of many nodes."""
_QUIET: Final = frozenset({"NoNodes", "DriversNotReady"})
"""Reasons that say nothing about a rollout."""
_NORMAL: Final = frozenset({
    "WindowShut", "IdleAwaited", "GangSpared", "WaveSoaking", "AnalysisRunning", "ApprovalRequired", "Aborted",
    "UpToDate", "Progressing", "Paused"})


class PolicyEvents:
    """Remember how the upgrade of the fleet stood, and say what is new. What is so at a start, or a change of leader, is not."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._said = ""
        self._still: float | None = None
        """Since when nothing has gone on."""
        self._held: frozenset[Reason] = frozenset()
        """What the rollout waits for while nothing goes on."""
        self._told: tuple[frozenset[Reason], float] = (frozenset(), -AGAIN)
        """What the last standstill was for that was told, and when."""

    def due(self) -> float | None:
        """Return when a standstill is to be told if it lasts: nothing else may happen until then."""
        if self._still is None or self._said == BLOCKED:
            return None
        reasons, at = self._told
        return max(self._still + LASTS, at + AGAIN) if reasons == self._held else self._still + LASTS

    def __call__(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass."""
        active = seen.policies.policy
        view = active.view
        if seen.decision is None or not seen.decision.nodes or view is None:
            self._still = None if seen.decision is not None else self._still
            return
        reason = "InvalidPolicy" if active.problems else reason_of(seen.decision)
        needed = self._stands_still(reason == BLOCKED, seen.decision, seen.at)
        if reason == BLOCKED and self._said and (due := self.due()) is not None:
            reason = BLOCKED if seen.at >= due else "Progressing"
        if reason in _QUIET or reason == self._said:
            return
        before, self._said = self._said, reason
        if reason == BLOCKED:
            self._told = self._held, seen.at
        if before:
            about = About(f"{names.NVIDIA_GROUP}/{names.CLUSTER_POLICY_VERSION}", "ClusterPolicy", view.name, view.uid)
            level = NORMAL if reason in _NORMAL or (reason == BLOCKED and not needed) else WARNING
            message = _message(seen.decision, reason, seen.policies)
            self._recorder.record(about, level, f"{names.ROLLOUT_EVENT_PREFIX}{reason}", message)

    def _stands_still(self, still: bool, plan: Plan, now: float) -> bool:
        """Note whether nothing goes on, since when and why; tell whether it needs somebody that it does not."""
        if not still:
            self._held, self._still = frozenset(), None
            return False
        waiting = [hold.reason for name, hold in plan.holds.items() if plan.nodes[name].state not in AT_REST]
        self._held = frozenset(waiting)
        if self._still is None:
            self._still = now
        return any(reason.needs_person for reason in waiting)


def _message(plan: Plan, reason: str, policies: PoliciesInForce) -> str:
    """Return what is said of a reason; most passes have the same one as before, and nothing to say."""
    if problems := policies.policy.problems:
        return "; ".join(map(str, problems))
    message = rollout_of(plan).message
    return "; ".join((message, *refusals(policies))) if reason == "InvalidPolicy" else message
