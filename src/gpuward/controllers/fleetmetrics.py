"""Our gauges of the fleet, worked out when they are asked for: passes come more often, and a fleet is large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpuward.controllers.metricnames import OWN_FLEET, OWN_PREFIX
from gpuward.model.passes import Pass
from gpuward.model.plan import Plan
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.operands.decide import Reconciliation
from gpuward.policy.nvidiadrivers import PoliciesInForce
from gpuward.policy.refused import not_followed
from gpuward.report.groups import Group
from gpuward.report.nodes import groups_of
from gpuward.report.operands import OperandReport, moving_nodes, operand_reports


class FleetCollector(Collector):
    """Tell what the last passes saw: nodes and what they wait for, and operands."""

    def __init__(self) -> None:
        self.planned: Pass[PoliciesInForce, Plan] | None = None
        self.applied: Pass[PoliciesInForce, Reconciliation] | None = None
        self._waiting: dict[str, tuple[Reason, float]] = {}
        """What each node waits for, and since when it was seen to: a state may have begun long before its reason."""
        self._reports: tuple[object, list[OperandReport]] = (None, [])

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges that are known."""
        if self.planned is not None and self.planned.decision is not None:
            yield from self._nodes(self.planned, self.planned.decision)
        if self.applied is not None:
            yield from self._operands(self.applied)

    def _nodes(self, seen: Pass[PoliciesInForce, Plan], plan: Plan) -> Iterable[Metric]:
        statuses, now = plan.nodes.values(), seen.at
        labels = Counter("unknown" if status.before is None else status.label or "none" for status in statuses)
        yield _gauge("nodes_by_state", {state: labels[state] for state in (*(one or "none" for one in State), "unknown")})
        groups = Counter(groups_of(plan, seen.snapshot, seen.policies).values())
        yield _gauge("nodes_by_group", {group: groups[group] for group in Group})
        holds = plan.holds
        before, self._waiting = self._waiting, {}
        for name, hold in holds.items():
            known = before.get(name)
            self._waiting[name] = known if known is not None and known[0] is hold.reason else (hold.reason, now)
        held = Counter(reason for reason, _ in self._waiting.values())
        yield _gauge("driver_upgrade_held_nodes", {reason: held[reason] for reason in Reason})
        first: dict[str, float] = {}
        for reason, since in self._waiting.values():
            first[reason] = min(since, first.get(reason, since))
        yield _gauge("driver_upgrade_held_since_timestamp_seconds", first)

        yield _gauge("policies_not_followed", not_followed(seen.policies))
        left = plan.estimate
        if left is not None and not (left.unknown or left.is_silent):
            yield _gauge("driver_upgrade_finish_timestamp_seconds", {"": left.at + left.left})

    def _operands(self, seen: Pass[PoliciesInForce, Reconciliation]) -> Iterable[Metric]:
        if self._reports[0] is not seen:
            self._reports = seen, operand_reports(seen.snapshot, seen.policies)
        plan = self.planned.decision if self.planned is not None else None
        under_way, waiting = moving_nodes(plan or Plan())
        has_gpus = any(node.gpu_present for node in seen.snapshot.nodes.values())
        reports = self._reports[1]
        yield _gauge("operand_pods_desired", {one.name: one.desired for one in reports})
        yield _gauge("operand_pods_ready", {one.name: one.ready for one in reports})
        yield _gauge("operand_troubled", {one.name: has_gpus and one.is_troubled(under_way, waiting) for one in reports})


def _gauge(name: str, values: Mapping[str, float]) -> Metric:
    told = OWN_FLEET[name]
    family = GaugeMetricFamily(OWN_PREFIX + name, told.means, labels=told.labels)
    for label, value in values.items():
        family.add_metric([str(label)] if told.labels else [], value)
    return family
