"""What the RolloutPolicy in force makes of the upgrade policy, and what holds while it cannot be followed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import FailureBudget, RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import PolicyView
from gpuward.policy.clusterpolicy import ActivePolicy, ClusterPolicyReader
from gpuward.policy.kept import remember
from tests.policy.test_clusterpolicy import view


def rollout(name: str = "default", generation: int = 1, **spec: Any) -> PolicyView:
    body = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name}, "spec": spec}
    return PolicyView(name, f"uid-{name}", "1", generation, body=body)


def read(*rollouts: PolicyView, reader: ClusterPolicyReader | None = None, **annotations: str) -> ActivePolicy:
    kept = {f"gpuward.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    snapshot = Snapshot("gpu-operator", policies=(view(annotations=kept),), rollout_policies=rollouts)
    return (reader or ClusterPolicyReader()).read(snapshot)


def test_without_one_the_defaults_hold() -> None:
    assert read().upgrades.rollout == RolloutSettings()
    assert read().upgrades.admit


def test_the_oldest_one_is_in_force() -> None:
    active = read(rollout("a", retries=7), rollout("b", retries=1))
    assert active.upgrades.rollout.retries == 7
    assert active.rollout.title == "RolloutPolicy a"


def test_an_edit_is_read_and_its_end_brings_the_defaults_back() -> None:
    reader = ClusterPolicyReader()
    assert read(rollout(retries=7), reader=reader).upgrades.rollout.retries == 7
    assert read(rollout(generation=2, retries=8), reader=reader).upgrades.rollout.retries == 8
    assert read(reader=reader).upgrades.rollout.retries == RolloutSettings().retries


def test_a_change_of_its_status_alone_is_not_decoded_again() -> None:
    reader = ClusterPolicyReader()
    first, later = rollout(retries=7), msgspec.structs.replace(rollout(retries=7), version="2")
    before = read(first, reader=reader)
    again = read(later, reader=reader)
    assert again.rollout.view is later
    assert again.upgrades is before.upgrades


def test_an_invalid_one_starts_nothing_and_keeps_the_settings_before() -> None:
    before = read(rollout(failureBudget={"nodes": 9}, deadlines={"drain-required": "1h"})).upgrades
    active = read(rollout(retries="x"), valid_upgrade_policy=remember(before))
    assert [problem.field for problem in active.rollout.problems] == ["spec.retries"]
    assert active.upgrades == msgspec.structs.replace(before, admit=False, invalid="RolloutPolicy default")
    assert active.upgrades.rollout.failure_budget == FailureBudget(9, 10)
    assert active.upgrades.rollout.deadline(State.DRAIN_REQUIRED) == 3600
    assert active.valid is not None, "the ClusterPolicy itself is followed"
    assert remember(active.upgrades) == remember(before), "what is remembered stays"


@pytest.mark.parametrize("kept", ["", "{"])
def test_an_invalid_one_without_settings_before_leaves_the_defaults(kept: str) -> None:
    active = read(rollout(retries="x"), valid_upgrade_policy=kept)
    assert active.upgrades.rollout == RolloutSettings()
    assert not active.upgrades.admit


def test_a_valid_one_holds_also_beside_an_invalid_cluster_policy() -> None:
    snapshot = Snapshot("gpu-operator", policies=(view(maxUnavailable="abc"),), rollout_policies=(rollout(retries=7),))
    upgrades = ClusterPolicyReader().read(snapshot).upgrades
    assert (upgrades.admit, upgrades.rollout.retries) == (False, 7)


def test_a_rollout_is_resumed_by_an_annotation_that_is_not_remembered() -> None:
    upgrades = read(rollout(retries=7), resumed_at="1970-01-01T00:01:00.500Z").upgrades
    assert (upgrades.rollout.resumed_at, upgrades.rollout.retries) == (60.5, 7)
    assert msgspec.json.decode(remember(upgrades), type=UpgradePolicy).rollout.resumed_at == 0


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31", "2026-01-31T12:00:00", "12"])
def test_a_resumption_at_no_time_is_named_and_forgives_nothing(text: str) -> None:
    active = read(resumed_at=text)
    assert active.upgrades.rollout.resumed_at == 0
    assert active.upgrades.admit
    assert active.resume_problem is not None
    assert active.resume_problem.field == f"metadata.annotations['{names.RESUMED_AT}']"
    assert active.resume_problem.value == text


def test_an_edit_of_the_annotation_alone_is_seen() -> None:
    reader = ClusterPolicyReader()
    assert read(reader=reader).upgrades.rollout.resumed_at == 0
    assert read(reader=reader, resumed_at="1970-01-01T00:01:00Z").upgrades.rollout.resumed_at == 60
