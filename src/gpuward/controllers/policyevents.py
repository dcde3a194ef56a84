"""Say on the ClusterPolicy how the driver upgrade of the fleet goes: one Kubernetes event whenever that changes."""

from __future__ import annotations

from typing import Final

from gpuward import names
from gpuward.kube.events import NORMAL, WARNING, About, EventRecorder
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.operands.rollout import rollout_of
from gpuward.policy.nvidiadrivers import PoliciesInForce

_SAME: Final = {"Blocked": "Progressing"}
"""A rollout comes to a standstill and goes on all the time: its nodes have events of their own."""
_QUIET: Final = frozenset({"NoNodes", "DriversNotReady"})
"""Reasons that say nothing about a rollout."""
_NORMAL: Final = frozenset({
    "WindowShut", "IdleAwaited", "WaveSoaking", "AnalysisRunning", "ApprovalRequired", "Aborted", "UpToDate",
    "Progressing", "Paused"})


class PolicyEvents:
    """Remember how the upgrade of the fleet stood, and say what is new. What is so at a start, or a change of leader, is not."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._said = ""

    def __call__(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass."""
        active = seen.policies.policy
        view = active.view
        if seen.decision is None or not seen.decision.nodes or view is None:
            return
        rollout = rollout_of(seen.decision)
        reason, message = _SAME.get(rollout.reason, rollout.reason), rollout.message
        if active.problems:
            reason, message = "InvalidPolicy", "; ".join(map(str, active.problems))
        if reason in _QUIET or reason == self._said:
            return
        before, self._said = self._said, reason
        if before:
            about = About(f"{names.NVIDIA_GROUP}/{names.CLUSTER_POLICY_VERSION}", "ClusterPolicy", view.name, view.uid)
            level = NORMAL if reason in _NORMAL else WARNING
            self._recorder.record(about, level, f"{names.ROLLOUT_EVENT_PREFIX}{reason}", message)
