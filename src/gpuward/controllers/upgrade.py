"""The upgrade controller: the driver upgrade's decision, and its log lines."""

from __future__ import annotations

from typing import Final

import structlog

from gpuward.controllers.planning import Planner
from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.driver import is_driver_pod
from gpuward.model.explain import sentence
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Plan
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PodView
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.pods import covers


class UpgradeController:
    """Upgrade the drivers of a fleet."""

    name: Final = "controllers.Upgrade"

    def __init__(self) -> None:
        self._planner = Planner()
        self._last = Plan()

    def decide(self, snapshot: Snapshot, policies: PoliciesInForce, now: float) -> Plan:
        """Return the plan for the fleet under the policies in force; nothing to do until all pods that matter are known."""
        if not covers(snapshot.followed, policies.upgrades):
            return self._last.waiting()
        self._last = self._planner.decide(snapshot, policies.decidable, now)
        return self._last


class UpgradeLog:
    """Log each state entered, each eviction, and each node passed over, once."""

    def __init__(self) -> None:
        self._log = structlog.get_logger(source=UpgradeController.name)
        self._said: dict[str, str] = {}

    def __call__(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass."""
        plan = seen.decision
        if plan is None:
            return
        for outcome in seen.outcomes:
            self._log_outcome(outcome)
        skipped = {name: sentence(hold) for name, hold in plan.holds.items() if hold.reason.passed_over}
        skipped |= {f"NVIDIADriver {name}": why for name, why in plan.troubles.items()}
        for pod in _unplaced(seen.snapshot):
            skipped[f"pod {pod.name}"] = f"the driver pod has no node: {pod.waiting}"
        for name, why in skipped.items():
            if self._said.get(name) != why:
                kind, _, bare = name.rpartition(" ")
                self._log.warning(f"Skipping {kind or 'node'}", **{kind or "node": bare}, reason=why)
        self._said = skipped

    def _log_outcome(self, outcome: Outcome) -> None:
        action = outcome.action
        if outcome.dropped:
            return
        if isinstance(action, EvictPod):
            if outcome.error:
                self._log.info("Eviction refused", node=action.node, pod=str(action.pod), error=outcome.error)
            else:
                self._log.info("Evicted pod", node=action.node, pod=str(action.pod))
        elif isinstance(action, PatchNode) and action.entered and not outcome.error:
            states = [str(state) for state in action.entered]
            self._log.info("Updated node state", node=action.node.name, states=states, change=action.why)


def _unplaced(snapshot: Snapshot) -> list[PodView]:
    """Return the driver pods that the scheduler could not place; one that it has not looked at yet is no matter.

    While driver pods that nobody owns are replaced by those of an NVIDIADriver, these wait for their nodes by design.
    """
    found = [pod for pod in snapshot.pods.get("", ()) if pod.waiting and is_driver_pod(pod, snapshot.namespace)]
    pods = (pod for on_node in snapshot.pods.values() for pod in on_node)
    if found and any(pod.orphan and is_driver_pod(pod, snapshot.namespace) for pod in pods):
        return []
    return found
