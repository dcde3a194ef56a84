"""The operator's metrics: NVIDIA's, with the names that its dashboards and alerts query, and ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gpuward import names
from gpuward.controllers.apimetrics import RequestCollector
from gpuward.controllers.fleetmetrics import FleetCollector
from gpuward.controllers.metricnames import COUNTED, FLEET, OWN, OWN_PREFIX, PREFIX
from gpuward.kube.http.stats import RequestStats
from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Counts, Plan
from gpuward.model.record import decode_record
from gpuward.model.states import AT_REST, State, parse_state
from gpuward.operands.decide import Reconciliation, has_nfd_labels
from gpuward.operands.status import Verdict
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.unmade import NOT_FOLLOWED

STATE_BOUNDS: Final = (5.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 86400.0)
PASS_BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)
CONTROLLERS: Final = "controllers."
"""What the names of loggers have before those of controllers."""

M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """Hold the metrics of one operator process.

    Its counters and what concerns the process itself are always there. The gauges of the fleet are there while `leads` holds and
    once they are known: one that looks on does not keep them up to date, and a sum over all replicas would count nodes twice.
    """

    def __init__(self, leads: Callable[[], bool] = lambda: True, requests: RequestStats | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has not annotated it
        self._leads = leads
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(RequestCollector(requests if requests is not None else RequestStats()))
        self._failures = self._own(Counter, "driver_upgrade_failures")
        self._states = self._own(Histogram, "driver_upgrade_state_seconds", buckets=STATE_BOUNDS)
        for state in State:  # a series that begins with its first observation would have no increase
            if state not in AT_REST:
                self._states.labels(state)
        self._evictions = self._own(Counter, "evictions")
        for result in ("granted", "refused"):
            self._evictions.labels(result)
        self._seconds = self._own(Histogram, "pass_seconds", buckets=PASS_BOUNDS)
        self._last = self._own(Gauge, "pass_last_timestamp_seconds")
        self._crashes = self._own(Counter, "pass_crashes")
        self._own(Gauge, "leader").set_function(self._leads)
        self._own(Gauge, "build_info").labels(version("gpuward")).set(1)
        self.total = Counter(PREFIX + "reconciliation", COUNTED["reconciliation"], registry=self.registry)
        self.failed = Counter(PREFIX + "reconciliation_failed", COUNTED["reconciliation_failed"], registry=self.registry)
        self.forget()

    def forget(self) -> None:
        """Let go of what is known of the fleet: who leads has changed."""
        self._fleet = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._ours = FleetCollector()
        self._fleet.register(self._ours)
        self._counts: tuple[bool, Counts] | None = None
        """What NVIDIA's gauges of the upgrade say: most plans say the same as the one before."""

    def passed(self, loop: str, seconds: float, crashed: bool) -> None:
        """Take the end of a pass of any loop."""
        controller = loop.removeprefix(CONTROLLERS)
        self._seconds.labels(controller).observe(seconds)
        self._last.labels(controller).set(time.time())
        self._crashes.labels(controller).inc(crashed)

    def planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass of the upgrade: set its metrics from the plan, and count what became of its actions."""
        if seen.decision is None:
            return
        self._ours.planned = seen
        self._upgrades(seen.decision)
        for outcome in seen.outcomes:
            if isinstance(outcome.action, PatchNode) and not (outcome.error or outcome.dropped):
                self._moved(outcome.action)
            elif isinstance(outcome.action, EvictPod) and not (outcome.called_off or outcome.dropped or outcome.idle):
                self._evictions.labels("refused" if outcome.error else "granted").inc()

    def applied(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass over the ClusterPolicy: set the metrics of how its objects stand."""
        verdict = seen.decision.verdict if seen.decision is not None else None
        if verdict is not None or seen.decision is None:
            self.total.inc()
            self.failed.inc(verdict is None or verdict.reason == NOT_FOLLOWED or any(map(_is_failure, seen.outcomes)))
        if seen.decision is None or (verdict is None and not all(view.deleting for view in seen.snapshot.policies)):
            return
        self._ours.applied = seen
        gpu_nodes = sum(node.gpu_present for node in seen.snapshot.nodes.values())
        self._reconciled(verdict, gpu_nodes=gpu_nodes, has_nfd_labels=has_nfd_labels(seen.snapshot), now=seen.at)

    def _moved(self, patch: PatchNode) -> None:
        if fails(patch):
            self._failures.inc()
        if (left := _left(patch)) is not None:
            state, seconds = left
            self._states.labels(state).observe(seconds)

    def _upgrades(self, plan: Plan) -> None:
        if (plan.auto_upgrade, plan.counts) == self._counts:
            return
        self._counts = plan.auto_upgrade, plan.counts
        self._set(driver_auto_upgrade_enabled=plan.auto_upgrade, auto_upgrade_enabled=plan.auto_upgrade)
        counts = plan.counts
        self._set(nodes_upgrades_in_progress=counts.in_progress, nodes_upgrades_done=counts.done,
                  nodes_upgrades_failed=counts.failed, nodes_upgrades_available=counts.available,
                  nodes_upgrades_pending=counts.pending)

    def _reconciled(self, verdict: Verdict | None, *, gpu_nodes: int, has_nfd_labels: bool, now: float) -> None:
        self._set(gpu_nodes_total=gpu_nodes, reconciliation_has_nfd_labels=has_nfd_labels)
        if verdict is None:
            self._set(reconciliation_status=-1)
            return
        self._set(reconciliation_status=1 if verdict.ready else 0)
        if verdict.ready and verdict.reason != "NFDLabelsMissing":
            self._set(reconciliation_last_success_ts_seconds=now)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        fleet = generate_latest(self._fleet) if self._leads() else b""
        return generate_latest(self.registry) + fleet

    def _own(self, kind: type[M], name: str, **more: Iterable[float]) -> M:
        return kind(OWN_PREFIX + name, OWN[name].means, OWN[name].labels, registry=self.registry, **more)  # type: ignore[arg-type]

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(PREFIX + name, FLEET[name], registry=self._fleet)
            self._gauges[name].set(value)


def _is_failure(outcome: Outcome) -> bool:
    return bool(outcome.error) and not outcome.called_off


def _left(patch: PatchNode) -> tuple[State, float] | None:
    """Return the state that a node leaves and how long it was in it, as far as our records tell; None where it was at rest."""
    state = parse_state(patch.expect_labels.get(names.UPGRADE_STATE))
    before, after = patch.expect_annotations.get(names.UPGRADE_RECORD), patch.annotations.get(names.UPGRADE_RECORD)
    if state is None or state in AT_REST or not patch.entered or before is None or after is None:
        return None
    try:
        was, now = decode_record(before), decode_record(after)
    except ValueError:
        return None
    return (state, max(0.0, now.since - was.since)) if was.state is state and was.since else None


def fails(patch: PatchNode) -> bool:
    """Tell whether a node fails; one without a state only gets back the label that a pause took."""
    known = patch.expect_labels.get(names.UPGRADE_STATE, "") is None and patch.entered[:1] == (State.FAILED,)
    return State.FAILED in patch.entered and not known
