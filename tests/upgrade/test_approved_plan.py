"""What a plan covers, on paper."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.analysis import Analysis
from gpuward.model.approved_plan import ApprovedPlan, PlannedPlace, decoded, differences
from gpuward.model.policy import UpgradePolicy
from gpuward.model.rollout import RolloutSettings
from gpuward.model.undrainable import Behaviour, UndrainableSettings
from gpuward.model.waves import Word
from gpuward.upgrade.approved_plan import limits_of
from tests.build import policy

NODES = {"n0": PlannedPlace("d1", "canary"), "n1": PlannedPlace("d1")}
PLAN = ApprovedPlan({"maxParallelUpgrades": "2"}, NODES)


def test_an_annotation_keeps_the_plan_and_its_digest() -> None:
    assert decoded(PLAN.encoded()) == PLAN
    many = ApprovedPlan({}, {f"ip-10-0-{n // 256}-{n % 256}.ec2.internal": PlannedPlace("d" * 40) for n in range(5000)})
    assert len(many.encoded()) < 65_536
    assert decoded(many.encoded()) == many


@pytest.mark.parametrize("text", ["", "x", "{}", '{"digest":"","plan":"?"}', '{"digest":"","plan":"eJw="}',
                                  PLAN.encoded().replace(PLAN.digest, "0" * 16)])
def test_garbage_is_no_plan_that_anybody_approved_of(text: str) -> None:
    assert decoded(text).unreadable
    assert list(differences(decoded(text), {}, {})) == ["the annotation gpuward.io/approved-plan is none that gpuward wrote"]


def test_nodes_that_are_done_or_gone_are_no_difference() -> None:
    assert list(differences(PLAN, PLAN.limits, {})) == []
    assert list(differences(PLAN, PLAN.limits, NODES)) == []


def test_each_difference_is_named() -> None:
    world = {"n0": PlannedPlace("d1"), "n1": PlannedPlace("d2"), "n2": PlannedPlace("d1")}
    assert list(differences(PLAN, {"maxUnavailable": "1"}, world)) == [
        "maxParallelUpgrades is the default, and was 2",
        "maxUnavailable is 1, and was the default",
        "node n0 would be in the last wave, not in wave canary",
        "node n1 would get another driver (d2, not d1)",
        "node n2 is not in it",
    ]


@pytest.mark.parametrize(("versions", "told"), [
    ({"d1": "595.91.07", "d2": "595.91.08"}, "595.91.08, not 595.91.07"),
    ({"d1": "595.91.07", "d2": "595.91.07"}, "595.91.07 with another template: d2, not d1"),
    ({"d2": "595.91.08"}, "595.91.08, not d1"),
])
def test_drivers_are_named_by_their_versions_where_these_are_known(versions: dict[str, str], told: str) -> None:
    found = list(differences(PLAN, PLAN.limits, {"n1": PlannedPlace("d2")}, versions))
    assert found == [f"node n1 would get another driver ({told})"]


def test_a_plan_that_was_approved_of_knows_the_versions_of_its_drivers() -> None:
    """Who looks at a node that the plan holds knows no driver by its digest."""
    kept = decoded(msgspec.structs.replace(PLAN, versions={"d1": "595.91.07"}).encoded())
    assert kept.digest == PLAN.digest
    found = list(differences(kept, PLAN.limits, {"n1": PlannedPlace("d2")}, {"d2": "595.91.08"}))
    assert found == ["node n1 would get another driver (595.91.08, not 595.91.07)"]


def test_what_people_say_or_measurements_tell_of_a_rollout_changes_no_limit() -> None:
    usual = policy()
    said = RolloutSettings(approved=Word(1.0, "a", ()), aborted=Word(1.0, "a", ()), resumed_at=5.0, approved_plan=PLAN,
                           analysis=Analysis(("a",), 7.0))
    assert limits_of(msgspec.structs.replace(usual, rollout=said, driver="a")) == limits_of(usual)
    assert limits_of(UpgradePolicy()) == {}


def test_limits_have_the_names_that_people_write() -> None:
    rules = RolloutSettings(retries=5, undrainable=UndrainableSettings(Behaviour.SKIP))
    found = limits_of(policy(parallel=3, rollout=rules))
    assert (found["maxParallelUpgrades"], found["retries"]) == ("3", "5")
    assert "Skip" in found["undrainable"]
