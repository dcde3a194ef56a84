"""The operator's metrics, with NVIDIA's names: what its dashboards and alerts query."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gpuward.model.plan import Plan, Reason
from gpuward.operands.status import Verdict

PREFIX = "gpu_operator_"
OWN_PREFIX = "gpuward_"
"""Of metrics that NVIDIA's operator does not have."""


class Metrics:
    """Hold the metrics of one operator process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has not annotated it
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._auto = [
            self._gauge("driver_auto_upgrade_enabled", "Whether automatic driver upgrades are on"),
            self._gauge("auto_upgrade_enabled", "The same, under the name in NVIDIA's documentation"),
        ]
        self._in_progress = self._gauge("nodes_upgrades_in_progress", "Nodes whose driver is being upgraded")
        self._done = self._gauge("nodes_upgrades_done", "Nodes whose driver is up to date")
        self._failed = self._gauge("nodes_upgrades_failed", "Nodes whose driver upgrade failed")
        self._available = self._gauge("nodes_upgrades_available", "Upgrades that could start now")
        self._pending = self._gauge("nodes_upgrades_pending", "Nodes that wait for their upgrade to start")
        self._held = Gauge(OWN_PREFIX + "driver_upgrade_held_nodes", "Nodes whose driver upgrade waits, by the reason",
                           ["reason"], registry=self.registry)
        self._failures = Counter(OWN_PREFIX + "driver_upgrade_failures", "Driver upgrades of nodes that failed",
                                 registry=self.registry)
        self.gpu_nodes = self._gauge("gpu_nodes_total", "Nodes with GPUs")
        self.has_nfd_labels = self._gauge("reconciliation_has_nfd_labels", "Whether node feature discovery labelled nodes")
        self.status = self._gauge("reconciliation_status", "1: all is well, 0: operands are not ready, -1: no usable policy")
        self.last_success = self._gauge("reconciliation_last_success_ts_seconds", "When all was well last, Unix seconds")
        self._upgrades: tuple[object, ...] = ()
        """What the upgrade metrics say: most plans say the same as the one before."""
        self.total = Counter(PREFIX + "reconciliation", "Passes over the ClusterPolicy", registry=self.registry)
        self.failed = Counter(PREFIX + "reconciliation_failed", "Passes that found it not ready", registry=self.registry)

    def upgrades(self, plan: Plan) -> None:
        """Set the upgrade metrics from a plan."""
        held = Counts(hold.reason for hold in plan.holds.values())
        upgrades = (plan.auto_upgrade, plan.counts, held)
        if upgrades == self._upgrades:
            return
        self._upgrades = upgrades
        for gauge in self._auto:
            gauge.set(plan.auto_upgrade)
        self._in_progress.set(plan.counts.in_progress)
        self._done.set(plan.counts.done)
        self._failed.set(plan.counts.failed)
        self._available.set(plan.counts.available)
        self._pending.set(plan.counts.pending)
        for reason in Reason:
            self._held.labels(str(reason)).set(held[reason])

    def failed_upgrade(self) -> None:
        """Count the failure of one node's upgrade."""
        self._failures.inc()

    def reconciled(self, verdict: Verdict | None, *, gpu_nodes: int, has_nfd_labels: bool, now: float) -> None:
        """Set the metrics of the ClusterPolicy from a pass; `now` in Unix seconds."""
        self.gpu_nodes.set(gpu_nodes)
        self.has_nfd_labels.set(has_nfd_labels)
        if verdict is None:
            self.status.set(-1)
            return
        self.total.inc()
        self.status.set(1 if verdict.ready else 0)
        if not verdict.ready:
            self.failed.inc()
        elif verdict.reason != "NFDLabelsMissing":
            self.last_success.set(now)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(PREFIX + name, text, registry=self.registry)
