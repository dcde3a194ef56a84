from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.crd.conversion import upgrade_policy, upgrade_problems
from gpuward.crd.driver_upgrade import DriverUpgradePolicy, NVIDIADriverUpgradePolicy
from gpuward.errors import PolicyError
from gpuward.model import policy as model


def written(given: dict[str, Any]) -> DriverUpgradePolicy:
    return msgspec.convert(given, DriverUpgradePolicy)


@pytest.mark.weakness(8)
def test_what_is_left_out_gets_nvidias_defaults() -> None:
    assert upgrade_policy(DriverUpgradePolicy()) == model.UpgradePolicy()
    assert upgrade_policy(NVIDIADriverUpgradePolicy()) == model.UpgradePolicy(auto_upgrade=True)


@pytest.mark.parametrize("part", ["wait_for_completion", "pod_deletion", "drain"])
def test_a_part_has_the_fields_of_the_models_and_their_defaults(part: str) -> None:
    written_as, followed = getattr(DriverUpgradePolicy(), part), getattr(model.UpgradePolicy(), part)
    assert msgspec.structs.asdict(written_as) == msgspec.structs.asdict(followed)


def test_every_setting_arrives() -> None:
    policy = upgrade_policy(written({
        "autoUpgrade": True, "maxParallelUpgrades": 0, "maxUnavailable": 3,
        "waitForCompletion": {"podSelector": "app=train", "timeoutSeconds": 60},
        "podDeletion": {"force": True, "timeoutSeconds": 0, "deleteEmptyDir": True},
        "drain": {"enable": True, "force": True, "podSelector": "a in (b)", "timeoutSeconds": 9, "deleteEmptyDir": True},
    }))
    assert policy == model.UpgradePolicy(
        auto_upgrade=True, max_parallel_upgrades=0, max_unavailable=model.MaxUnavailable(count=3),
        wait_for_completion=model.JobSettings("app=train", 60),
        pod_deletion=model.PodDeletionSettings(force=True, timeout_seconds=0, delete_empty_dir=True),
        drain=model.DrainSettings(enable=True, force=True, pod_selector="a in (b)", timeout_seconds=9, delete_empty_dir=True),
    )


@pytest.mark.parametrize(("value", "nodes_of_ten"), [(0, 0), (3, 3), ("0%", 0), ("25%", 3), ("100%", 10), ("150%", 15)])
def test_numbers_and_percentages(value: int | str, nodes_of_ten: int) -> None:
    assert upgrade_policy(written({"maxUnavailable": value})).max_unavailable.of(10) == nodes_of_ten


@pytest.mark.parametrize("value", ["abc", "", "3", "-5%", "5 %", "%", "2.5%", -1, "٣%"])
def test_what_is_neither_a_number_nor_a_percentage_is_refused(value: int | str) -> None:
    with pytest.raises(PolicyError) as caught:
        upgrade_policy(written({"maxUnavailable": value}))
    assert caught.value.field == "spec.driver.upgradePolicy.maxUnavailable"
    assert caught.value.value == value
    assert '"25%"' in caught.value.fix


def test_all_problems_are_listed_under_the_field_that_was_named() -> None:
    spec = written({
        "maxUnavailable": "x", "waitForCompletion": {"podSelector": "a b"}, "drain": {"podSelector": "="},
    })
    assert [problem.field for problem in upgrade_problems(spec, "spec.upgradePolicy")] == [
        "spec.upgradePolicy.maxUnavailable",
        "spec.upgradePolicy.waitForCompletion.podSelector",
        "spec.upgradePolicy.drain.podSelector",
    ]
