"""PodDisruptionBudgets to BudgetView."""

from __future__ import annotations

import msgspec

from gpuward.model.budgets import BudgetView
from gpuward.model.selectors import read_selector
from gpuward.wire.meta import WireMeta


class _Expression(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    selector: _Selector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class _Condition(msgspec.Struct):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[_Condition] | None = None


class _Budget(msgspec.Struct):
    metadata: WireMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Budget)


def budget_view(raw: bytes | msgspec.Raw) -> BudgetView | None:
    """Decode a disruption budget; None for one without a selector, which covers nothing.

    A budget whose status is older than its spec allows nothing: the eviction API refuses under it.
    """
    budget = _decoder.decode(raw)
    meta, selector = budget.metadata, budget.spec.selector
    if selector is None:
        return None
    known = budget.status.observed_generation >= meta.generation
    return BudgetView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        selector=read_selector(
            selector.match_labels or {},
            ((each.key, each.operator, each.values or ()) for each in selector.match_expressions or ())),
        allowed=budget.status.disruptions_allowed if known else 0,
        healthy=budget.status.current_healthy,
        desired=budget.status.desired_healthy if known else 0,
        expected=budget.status.expected_pods if known else 0,
        min_available=_text(budget.spec.min_available),
        max_unavailable=_text(budget.spec.max_unavailable),
        failure=_failure(budget.status),
        spares_unhealthy=budget.spec.unhealthy_pod_eviction_policy != "AlwaysAllow",
    )


def _failure(status: _Status) -> str:
    """Return why the disruption controller cannot work a budget out: it allows nothing then (disruption.go, failSafe)."""
    found = (one for one in status.conditions or () if one.type == "DisruptionAllowed" and one.reason == "SyncFailed")
    return next((one.message or one.reason for one in found if one.status == "False"), "")


def _text(amount: int | str | None) -> str:
    return "" if amount is None else str(amount)
