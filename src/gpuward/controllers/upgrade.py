"""The upgrade controller: the driver upgrade's decision, its log lines and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from gpuward.controllers.interest import Interest
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.planning import Planner
from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.placement import is_driver_pod
from gpuward.model.plan import Plan, Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.policy.nvidiadrivers import DriverReader
from gpuward.ports import Outcome
from gpuward.recorder.recorder import done
from gpuward.recording.frame import Pass
from gpuward.upgrade.explain import sentence

SKIPPING: Final = frozenset({
    Reason.SKIPPED, Reason.NODE_GONE, Reason.NODE_NOT_READY, Reason.PROTECTED_PODS, Reason.HELD_DEVICES,
    Reason.BUDGET_BLOCKS, Reason.RETRY_LATER, Reason.TWO_DRIVER_PODS, Reason.DRIVER_FAILING,
    Reason.UNKNOWN_STATE, Reason.MAINTENANCE, Reason.FAILED, Reason.UNDECIDED,
})
"""Reasons for which a node is passed over while others go on: worth one warning each time they begin."""


class UpgradeController:
    """Upgrade the drivers of a fleet."""

    name = "controllers.Upgrade"

    def __init__(self, reader: DriverReader, interest: Interest, metrics: Metrics) -> None:
        self._reader = reader
        self._interest = interest
        self.plan = Plan()
        """What the last pass decided."""
        self.listeners: list[Callable[[Plan], None]] = []
        """Called with each plan once it has been carried out."""
        self.observers: list[Callable[[Snapshot, Plan], None]] = []
        """The same, with the facts that the plan was made of."""
        self.recorders: list[Callable[[Pass], None]] = []
        """Called with each pass that decided, or failed to: on what, by which policies and when, and how it went."""
        self._begun: Pass | None = None
        self._metrics = metrics
        self._log = structlog.get_logger(source=self.name)
        self._planner = Planner()
        self._said: dict[str, str] = {}

    def decide(self, snapshot: Snapshot, now: float) -> Plan:
        """Return the plan for the fleet under the policies in force."""
        drivers = self._reader.read(snapshot)
        self._begun = None
        if not self._interest.covers(*drivers.upgrades):
            return self.plan.waiting()
        policies = drivers.decidable
        begun = Pass(snapshot, policies, now, drivers.policy.view.name if drivers.policy.view else "")
        try:
            plan = self._planner.decide(snapshot, policies, now)
        except Exception as error:
            self._record(msgspec.structs.replace(begun, error=type(error).__name__))
            raise
        self._begun = msgspec.structs.replace(begun, plan=plan, troubled=tuple(self._planner.troubles))
        return plan

    def _record(self, seen: Pass) -> None:
        for recorder in self.recorders:
            recorder(seen)

    def report(self, snapshot: Snapshot, decision: Plan, outcomes: Sequence[Outcome]) -> None:
        """Log each state entered, each eviction, and each node passed over, once; set the metrics."""
        self.plan = decision
        if self._begun is not None:
            self._record(msgspec.structs.replace(self._begun, outcomes=done(decision, outcomes)))
        for listener in self.listeners:
            listener(decision)
        for observer in self.observers:
            observer(snapshot, decision)
        self._metrics.upgrades(decision)
        for outcome in outcomes:
            self._log_outcome(outcome)
        skipped = {name: sentence(hold) for name, hold in decision.holds.items() if hold.reason in SKIPPING}
        skipped |= {f"NVIDIADriver {name}": why for name, why in self._planner.troubles.items()}
        for pod in _unplaced(snapshot):
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
            if State.FAILED in action.entered:
                self._metrics.failed_upgrade()
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
