"""What is said on each RolloutPolicy."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuward.controllers.rolloutpolicy import RolloutPolicyController, Statuses
from gpuward.model.actions import PatchStatus
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.nvidiadrivers import PolicyReader
from tests.policy.test_clusterpolicy import view
from tests.policy.test_rolloutpolicy import rollout


def decide(*rollouts: PolicyView, now: float = 0.0, **annotations: str) -> Statuses:
    kept = {f"gpuward.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    snapshot = Snapshot("gpu-operator", policies=(view(annotations=kept),), rollout_policies=rollouts)
    return RolloutPolicyController().decide(snapshot, PolicyReader().read(snapshot), now)


def said(decision: Statuses) -> dict[str, Any]:
    return {action.ref.name: action.status for action in decision.actions if isinstance(action, PatchStatus)}


def written(before: PolicyView, status: Any) -> PolicyView:
    return msgspec.structs.replace(before, body={**before.body, "status": status})


def test_the_one_in_force_and_the_ignored_ones_say_so() -> None:
    told = said(decide(rollout("a"), rollout("b", retries="x")))
    assert {name: status["state"] for name, status in told.items()} == {"a": "active", "b": "ignored"}
    assert told["a"]["conditions"][0]["status"] == "True"
    assert told["b"]["conditions"][0]["message"] == "RolloutPolicy a is older and in force"


def test_an_invalid_one_names_every_field_value_and_fix() -> None:
    decision = decide(rollout(retries="x", deadlines={"sleeping": "1m"}))
    (condition,) = said(decision)["default"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Accepted", "False", "Invalid")
    for text in ("spec.retries: 'x' cannot be used: write a whole number from 0 to 20", "'sleeping'", "drain-required"):
        assert text in condition["message"]
    assert len(decision.problems) == 2


def test_what_is_said_already_is_not_written_again_and_the_time_moves_with_the_condition_only() -> None:
    first = rollout(retries="x")
    status = said(decide(first, now=0.0))["default"]
    assert said(decide(written(first, status), now=60.0)) == {}
    edited = said(decide(written(rollout(generation=2, retries="y"), status), now=60.0))["default"]["conditions"][0]
    assert edited["lastTransitionTime"] == status["conditions"][0]["lastTransitionTime"]
    assert edited["observedGeneration"] == 2
    mended = said(decide(written(rollout(generation=3), status), now=60.0))["default"]
    assert mended["state"] == "active"
    assert mended["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:01:00.000Z"


def test_a_resumption_at_no_time_is_a_problem_that_people_are_told_of() -> None:
    (problem,) = decide(resumed_at="yesterday").problems
    assert problem.startswith("ClusterPolicy p: metadata.annotations['gpuward.io/resumed-at']: 'yesterday'")
