"""Which policy is in force, and what holds while it cannot be followed."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuward import names
from gpuward.model.policy import MaxUnavailable, UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import PolicyView
from gpuward.policy.clusterpolicy import ClusterPolicyReader
from gpuward.policy.kept import remember
from gpuward.sandbox.samples import sample_policy


def view(name: str = "p", generation: int = 1, annotations: dict[str, str] | None = None, **upgrade: Any) -> PolicyView:
    body: dict[str, Any] = sample_policy()
    body["metadata"] = {"name": name, "annotations": annotations or {}}
    body["spec"]["driver"]["upgradePolicy"] |= upgrade
    return PolicyView(name, f"uid-{name}", "1", generation, body=body)


def snapshot(*policies: PolicyView) -> Snapshot:
    return Snapshot("gpu-operator", policies=policies)


def test_without_a_policy_nothing_is_upgraded() -> None:
    active = ClusterPolicyReader().read(snapshot())
    assert active.view is None
    assert active.valid is None
    assert not active.upgrades.auto_upgrade


def test_the_first_policy_is_in_force() -> None:
    active = ClusterPolicyReader().read(snapshot(view("a", maxParallelUpgrades=7), view("b")))
    assert active.view is not None
    assert (active.view.name, active.upgrades.max_parallel_upgrades) == ("a", 7)
    assert active.valid is not None


def test_an_edit_is_read_and_a_change_of_status_or_annotations_alone_is_not_decoded_again() -> None:
    reader = ClusterPolicyReader()
    first = reader.read(snapshot(view(maxParallelUpgrades=1)))
    again = msgspec.structs.replace(view(maxParallelUpgrades=1), version="2")
    second = reader.read(snapshot(again))
    assert second.policy is first.policy
    assert second.view is again
    annotated = view(annotations={names.VALID_UPGRADE_POLICY: remember(first.upgrades)}, maxParallelUpgrades=1)
    assert reader.read(snapshot(annotated)).policy is first.policy
    assert reader.read(snapshot(view(generation=2, maxParallelUpgrades=3))).upgrades.max_parallel_upgrades == 3


def test_an_invalid_policy_names_field_value_and_fix_and_admits_nothing() -> None:
    active = ClusterPolicyReader().read(snapshot(view(maxUnavailable="abc")))
    assert active.valid is None
    (problem,) = active.problems
    assert (problem.field, problem.value) == ("spec.driver.upgradePolicy.maxUnavailable", "abc")
    assert problem.fix
    assert active.upgrades.admit is False
    assert active.upgrades.auto_upgrade, "nodes in progress finish"


def test_nodes_in_progress_finish_under_the_last_valid_policy() -> None:
    valid = UpgradePolicy(auto_upgrade=True, max_parallel_upgrades=9, max_unavailable=MaxUnavailable(count=4))
    kept = {names.VALID_UPGRADE_POLICY: remember(valid)}
    active = ClusterPolicyReader().read(snapshot(view(annotations=kept, maxUnavailable="abc")))
    assert active.upgrades == msgspec.structs.replace(valid, admit=False, invalid="ClusterPolicy p")


def test_a_memory_that_somebody_spoilt_is_as_good_as_none() -> None:
    active = ClusterPolicyReader().read(snapshot(view(annotations={names.VALID_UPGRADE_POLICY: "{"}, maxUnavailable="abc")))
    assert active.upgrades == UpgradePolicy(auto_upgrade=True, admit=False, invalid="ClusterPolicy p")


def test_drivers_that_are_not_the_policys_are_not_upgraded_by_it() -> None:
    policy = view()
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy.body))
    body["spec"]["driver"] |= {"useNvidiaDriverCRD": True}
    assert not ClusterPolicyReader().read(snapshot(msgspec.structs.replace(policy, body=body))).upgrades.auto_upgrade
