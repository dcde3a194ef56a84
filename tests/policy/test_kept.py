"""What a custom resource remembers of its last valid version, whoever edited the annotation since."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuward import names
from gpuward.labels.policy import LabelSettings
from gpuward.model.policy import JobSettings, MaxUnavailable, UpgradePolicy
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.policy.kept import LONGEST, KeptClaim, KeptSettings, kept, remember

VALID = UpgradePolicy(
    auto_upgrade=True, max_parallel_upgrades=9, max_unavailable=MaxUnavailable(count=4), driver="a",
    wait_for_completion=JobSettings("app=x", 7),
    rollout=RolloutSettings(deadlines={State.DRAIN_REQUIRED: 90.0}, retries=1, discovery_grace=5.0))
FIRST = (
    '{"auto_upgrade":true,"max_parallel_upgrades":2,"max_unavailable":{"count":null,"percent":25},"wait_for_completion":'
    '{"pod_selector":"","timeout_seconds":0},"pod_deletion":{"force":false,"timeout_seconds":300,"delete_empty_dir":false},'
    '"drain":{"enable":false,"force":false,"pod_selector":"","timeout_seconds":300,"delete_empty_dir":false},"admit":true,'
    '"invalid":"","driver":"","unowned":false,"rollout":{"failure_budget":{"nodes":3,"percent":10},"deadlines":{},"retries":3,'
    '"retry_backoff":60.0,"discovery_grace":600.0,"device_holders":"Hold","kill_at_deadline":false,"resumed_at":0.0}}'
)
"""What the first version wrote."""


def found(text: str) -> KeptSettings:
    return kept({"metadata": {"annotations": {names.VALID_UPGRADE_POLICY: text}}})


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(remember(VALID, labels=LabelSettings(), claim=KeptClaim())) | fields)


def test_what_is_remembered_is_found_again() -> None:
    labels = LabelSettings(True, "all-disabled", False, True)
    claim = KeptClaim({"pool": "a", "example.com/x": ""}, driver_type="vgpu")
    assert found(remember(VALID, labels=labels, claim=claim)) == KeptSettings(VALID, labels, claim, 2)
    assert found(remember(VALID)) == KeptSettings(VALID, None, None, 2)
    assert len(remember(VALID, labels=labels, claim=claim)) < 1500


@pytest.mark.parametrize("claim", [{}, {"driver_type": "of-a-later-version"}])
def test_a_claim_without_a_type_that_is_known_is_a_claim(claim: dict[str, Any]) -> None:
    assert found(changed(claim={"selector": {"pool": "a"}, **claim})).claim == KeptClaim({"pool": "a"})


def test_what_the_first_version_wrote_is_read() -> None:
    assert found(FIRST) == KeptSettings(UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=2), version=1)


def test_of_what_a_later_version_wrote_the_upgrade_policy_is_read() -> None:
    assert found(changed(version=3, labels={"everything": "else"})) == KeptSettings(VALID, version=3)


@pytest.mark.parametrize("text", [
    "", "{", "null", "7", "[]", "{}", '{"version": 2}', "[" * 200_000, '{"auto_upgrade":' + "[" * 100_000, "x" * (LONGEST + 1),
    changed(auto_upgrade="yes"), changed(max_parallel_upgrades=-1), changed(max_parallel_upgrades=10**11),
    changed(rollout={"retry_backoff": 1e300}), changed(rollout={"deadlines": {"drain-required": -1.0}}),
    changed(drain={"pod_selector": "!!"}), changed(wait_for_completion={"pod_selector": "a = b c"}), changed(version="two"),
])
def test_garbage_is_as_good_as_nothing(text: str) -> None:
    assert found(text) == KeptSettings()


@pytest.mark.parametrize("part", [
    {"labels": 7}, {"labels": {"driver_upgrades": "yes"}}, {"labels": {"default_mig_config": "a b"}}, {"labels": None},
    {"claim": 7}, {"claim": {"selector": {"a b": "c"}}}, {"claim": {"selector": {"a": "b c"}}}, {"claim": {"selector": [1]}},
    {"claim": {"selector": {"a": "b"}, "default": True}}, {"claim": {"selector": {names.DRIVER_OWNER: "b"}}},
])
def test_a_part_that_is_garbage_spoils_no_other(part: dict[str, Any]) -> None:
    memory = found(changed(**part))
    assert memory.upgrades == VALID
    assert (memory.labels is None, memory.claim is None) == ("labels" in part, "claim" in part)
