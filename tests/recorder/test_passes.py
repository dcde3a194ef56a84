"""What the upgrade controller hands to the recorder: passes that decided, and those that failed to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView
from gpuward.ports import Outcome
from gpuward.recording.frame import Done, Pass
from tests import build
from tests.controllers.test_upgrade import controller


def handed_over(snapshot: Snapshot, *, listed: bool = True) -> list[Pass]:
    """Return what is handed over of a pass whose actions all fail."""
    upgrades, passes = controller(listed=listed), list[Pass]()
    upgrades.recorders.append(passes.append)
    plan = upgrades.decide(snapshot, build.NOW)
    upgrades.report(snapshot, plan, [Outcome(action, error="no") for action in plan.actions])
    return passes


def test_a_pass_is_handed_over_with_what_it_was_decided_on_and_how_it_went() -> None:
    snapshot = build.cluster([build.node(state="upgrade-done")], [build.driver_pod(driver="560")])
    (passed,) = handed_over(snapshot)
    assert passed.snapshot is snapshot
    assert (passed.policies, passed.at, passed.policy) == ((UpgradePolicy(absent="there is no ClusterPolicy"),), build.NOW, "")
    assert passed.plan.actions
    assert passed.outcomes[0] == Done(0, "no")


def test_a_pass_in_which_nothing_could_be_decided_yet_is_not() -> None:
    assert handed_over(build.fleet(2), listed=False) == []


def test_a_pass_that_fails_is_handed_over_before_it_is_raised() -> None:
    nonsense: Any = None
    broken = DaemonSetView(build.NAMESPACE, "x", labels={"app": "nvidia-driver-daemonset"}, node_selector=nonsense)
    snapshot = msgspec.structs.replace(build.fleet(2), daemonsets=(broken,))
    upgrades, passes = controller(), list[Pass]()
    upgrades.recorders.append(passes.append)
    with pytest.raises(AttributeError):
        upgrades.decide(snapshot, build.NOW)
    assert [passed.error for passed in passes] == ["AttributeError"]
