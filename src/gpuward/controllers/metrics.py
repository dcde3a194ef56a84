"""The operator's metrics, with NVIDIA's names: what its dashboards and alerts query."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.operands.decide import Reconciliation, has_nfd_labels
from gpuward.operands.status import Verdict
from gpuward.policy.nvidiadrivers import PoliciesInForce

PREFIX = "gpu_operator_"
OWN_PREFIX = "gpuward_"
"""Of metrics that NVIDIA's operator does not have."""


FLEET: Final = {
    "driver_auto_upgrade_enabled": "Whether automatic driver upgrades are on",
    "auto_upgrade_enabled": "The same, under the name in NVIDIA's documentation",
    "nodes_upgrades_in_progress": "Nodes whose driver is being upgraded",
    "nodes_upgrades_done": "Nodes whose driver is up to date",
    "nodes_upgrades_failed": "Nodes whose driver upgrade failed",
    "nodes_upgrades_available": "Upgrades that could start now",
    "nodes_upgrades_pending": "Nodes that wait for their upgrade to start",
    "gpu_nodes_total": "Nodes with GPUs",
    "reconciliation_has_nfd_labels": "Whether node feature discovery labelled nodes",
    "reconciliation_status": "1: all is well, 0: operands are not ready, -1: no usable policy",
    "reconciliation_last_success_ts_seconds": "When all was well last, Unix seconds",
}
"""The gauges of the fleet, without their prefix."""


class Metrics:
    """Hold the metrics of one operator process.

    Its counters and what concerns the process itself are always there. The gauges of the fleet are there while `leads` holds and
    once they are known: one that looks on does not keep them up to date, and a sum over all replicas would count nodes twice.
    """

    def __init__(self, leads: Callable[[], bool] = lambda: True) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has not annotated it
        self._leads = leads
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._failures = Counter(OWN_PREFIX + "driver_upgrade_failures", "Driver upgrades of nodes that failed",
                                 registry=self.registry)
        self.total = Counter(PREFIX + "reconciliation", "Passes over the ClusterPolicy", registry=self.registry)
        self.failed = Counter(PREFIX + "reconciliation_failed", "Passes that found it not ready", registry=self.registry)
        self.forget()

    def forget(self) -> None:
        """Let go of what is known of the fleet: who leads has changed."""
        self._fleet = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._held = Gauge(OWN_PREFIX + "driver_upgrade_held_nodes", "Nodes whose driver upgrade waits, by the reason",
                           ["reason"], registry=self._fleet)
        self._set_to: tuple[object, ...] = ()
        """What the upgrade metrics say: most plans say the same as the one before."""

    def planned(self, seen: Pass[PoliciesInForce, Plan]) -> None:
        """Take a pass of the upgrade: set its metrics from the plan, and count the nodes that failed."""
        if seen.decision is None:
            return
        self._upgrades(seen.decision)
        for outcome in seen.outcomes:
            if isinstance(outcome.action, PatchNode) and fails(outcome.action) and not (outcome.error or outcome.dropped):
                self._failures.inc()

    def applied(self, seen: Pass[PoliciesInForce, Reconciliation]) -> None:
        """Take a pass over the ClusterPolicy: set the metrics of how its objects stand."""
        if seen.decision is None or (seen.decision.verdict is None and not all(view.deleting for view in seen.snapshot.policies)):
            return
        gpu_nodes = sum(node.gpu_present for node in seen.snapshot.nodes.values())
        self._reconciled(seen.decision.verdict, gpu_nodes=gpu_nodes, has_nfd_labels=has_nfd_labels(seen.snapshot), now=seen.at)

    def _upgrades(self, plan: Plan) -> None:
        held = Counts(hold.reason for hold in plan.holds.values())
        upgrades = (plan.auto_upgrade, plan.counts, held)
        if upgrades == self._set_to:
            return
        self._set_to = upgrades
        self._set(driver_auto_upgrade_enabled=plan.auto_upgrade, auto_upgrade_enabled=plan.auto_upgrade)
        counts = plan.counts
        self._set(nodes_upgrades_in_progress=counts.in_progress, nodes_upgrades_done=counts.done,
                  nodes_upgrades_failed=counts.failed, nodes_upgrades_available=counts.available,
                  nodes_upgrades_pending=counts.pending)
        for reason in Reason:
            self._held.labels(str(reason)).set(held[reason])

    def _reconciled(self, verdict: Verdict | None, *, gpu_nodes: int, has_nfd_labels: bool, now: float) -> None:
        self._set(gpu_nodes_total=gpu_nodes, reconciliation_has_nfd_labels=has_nfd_labels)
        if verdict is None:
            self._set(reconciliation_status=-1)
            return
        self.total.inc()
        self._set(reconciliation_status=1 if verdict.ready else 0)
        if not verdict.ready:
            self.failed.inc()
        elif verdict.reason != "NFDLabelsMissing":
            self._set(reconciliation_last_success_ts_seconds=now)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        fleet = generate_latest(self._fleet) if self._leads() else b""
        return generate_latest(self.registry) + fleet

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(PREFIX + name, FLEET[name], registry=self._fleet)
            self._gauges[name].set(value)


def fails(patch: PatchNode) -> bool:
    """Tell whether a node fails; one without a state only gets back the label that a pause took."""
    known = patch.expect_labels.get(names.UPGRADE_STATE, "") is None and patch.entered[:1] == (State.FAILED,)
    return State.FAILED in patch.entered and not known
