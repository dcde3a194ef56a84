"""The waves of a RolloutPolicy as people write them: what cannot be followed is refused with its field, its value and a fix."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.crd.rollout_conversion import rollout_settings, typed_rollout
from gpuward.model.waves import Growth, Share, Tolerance, Wave

CANARY = {"name": "canary", "nodes": 2}


def written(*waves: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a RolloutPolicy with waves."""
    return {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "default"},
            "spec": {"waves": list(waves), **spec}}


def test_waves_are_followed_as_they_are_written() -> None:
    test = {"name": "test", "nodeSelector": {"pool": "test"}, "nodes": "10%", "maxUnavailable": 1, "soak": "1h30m",
            "approval": "Required", "failureBudget": {"nodes": 1, "percent": 5}}
    policy, problems = typed_rollout(written(CANARY, test, growth={"factor": 3}))
    assert problems == []
    assert policy is not None
    settings = rollout_settings(policy)
    assert settings.waves == (
        Wave("canary", nodes=Share(count=2)),
        Wave("test", {"pool": "test"}, Share(percent=10), Share(count=1), 5400.0, True, Tolerance(1, 5)),
    )
    assert settings.growth == Growth(1, 3)


@pytest.mark.parametrize(("wave", "field", "value"), [
    ({"name": "canary"}, ".name", "canary"),
    ({"name": "Canary 1"}, ".name", "Canary 1"),
    ({"name": "b", "nodes": 0}, ".nodes", 0),
    ({"name": "b", "nodes": "0%"}, ".nodes", "0%"),
    ({"name": "b", "nodes": "3"}, ".nodes", "3"),
    ({"name": "b", "nodes": True}, ".nodes", True),
    ({"name": "b", "maxUnavailable": "101%"}, ".maxUnavailable", "101%"),
    ({"name": "b", "soak": "a day"}, ".soak", "a day"),
    ({"name": "b", "soak": "800h"}, ".soak", "800h"),
    ({"name": "b", "approval": "required"}, ".approval", "required"),
    ({"name": "b", "nodeSelector": {"a b": "c"}}, ".nodeSelector", "a b"),
    ({"name": "b", "nodeSelector": {"pool": "c d"}}, ".nodeSelector[pool]", "c d"),
    ({"name": "b", "windows": [{"schedule": "0 25 * * *", "duration": "1h"}]}, ".windows[0].schedule", "0 25 * * *"),
    ({"name": "b", "windows": [{"schedule": "0 5 * * *"}]}, ".windows[0]", "with schedule"),
    ({"name": "b", "windows": [{"start": "2026-01-02", "end": "2026-01-01"}]}, ".windows[0].end", "2026-01-01"),
    ({"name": "b", "failureBudget": {"nodes": -1}}, ".failureBudget.nodes", -1),
])
def test_a_wave_that_cannot_be_followed_is_named_with_its_value(wave: dict[str, Any], field: str, value: Any) -> None:
    _, (problem,) = typed_rollout(written(CANARY, wave))
    assert (problem.field, problem.value) == (f"spec.waves[1]{field}", value)
    assert problem.fix


@pytest.mark.parametrize(("growth", "field"), [({"start": 0}, "start"), ({"factor": 0}, "factor"), ({"start": "1"}, "start")])
def test_growth_that_cannot_be_followed_is_named(growth: dict[str, Any], field: str) -> None:
    _, (problem,) = typed_rollout(written(growth=growth))
    assert problem.field == f"spec.growth.{field}"


def test_there_are_only_so_many_waves() -> None:
    _, problems = typed_rollout(written(*({"name": f"w{number}"} for number in range(17))))
    assert [problem.field for problem in problems] == ["spec.waves"]


def test_shares_of_few_nodes_are_one_node_at_least() -> None:
    assert [Share(percent=10).of(total) for total in (0, 1, 9, 10, 19, 20)] == [1, 1, 1, 1, 1, 2]
    assert [Share(count=3).of(total) for total in (0, 5)] == [3, 3]
    assert [Tolerance(1, 10).of(total) for total in (5, 20, 39)] == [1, 2, 3]
