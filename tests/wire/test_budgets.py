"""Disruption budgets to views: what they cover, and what they allow while their status lags."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.model.views import PodView
from gpuward.wire.budgets import budget_view


def budget(selector: Any, *, generation: int = 2, observed: int = 2, allowed: int = 3) -> Any:
    """Decode a budget in namespace ml."""
    return budget_view(msgspec.json.encode({
        "metadata": {"name": "b", "namespace": "ml", "generation": generation},
        "spec": {"selector": selector},
        "status": {"observedGeneration": observed, "disruptionsAllowed": allowed},
    }))


@pytest.mark.parametrize(("selector", "labels", "covered"), [
    ({}, {"a": "1"}, True),
    ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
    ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
    ({"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"b": "2"}, True),
])
def test_what_a_budget_covers(selector: Any, labels: dict[str, str], covered: bool) -> None:
    assert budget(selector).covers(PodView("ml", "p", labels=labels)) is covered
    assert not budget(selector).covers(PodView("elsewhere", "p", labels=labels))


def test_a_budget_without_a_selector_covers_nothing() -> None:
    assert budget(None) is None


def test_a_status_that_lags_behind_the_spec_allows_nothing() -> None:
    assert budget({}).allowed == 3
    assert budget({}, generation=3).allowed == 0


@pytest.mark.parametrize(("spec", "told"), [
    ({"maxUnavailable": 0}, "raise its maxUnavailable, now 0"),
    ({"maxUnavailable": "0%"}, "raise its maxUnavailable, now 0%"),
    ({"maxUnavailable": "20%"}, "raise its maxUnavailable, now 20%, or run more replicas"),
    ({"minAvailable": 2}, "lower its minAvailable, now 2, or run more replicas"),
    ({"minAvailable": "100%"}, "lower its minAvailable, now 100%"),
    ({}, "raise its maxUnavailable, lower its minAvailable or run more replicas"),
])
def test_only_what_can_widen_a_budget_is_named(spec: dict[str, Any], told: str) -> None:
    found = budget_view(msgspec.json.encode({"metadata": {"name": "b", "namespace": "ml"}, "spec": {"selector": {}, **spec}}))
    assert found is not None
    assert found.how_to_widen == told
