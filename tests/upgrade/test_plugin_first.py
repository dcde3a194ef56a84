"""The device plugin that stops before a driver goes, on paper: whatever keeps the driver gives its label back."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from tests.build import NOW, driver_pod, node, policy, record, validator
from tests.upgrade.one import ask


@pytest.mark.parametrize("rules", [policy(auto_upgrade=False), policy(auto_upgrade=False, absent="no ClusterPolicy")])
def test_the_label_comes_back_where_a_pause_keeps_the_driver(rules: UpgradePolicy) -> None:
    driver, seen = driver_pod(), validator()
    remembers = msgspec.structs.replace(
        record(State.POD_RESTART_REQUIRED, ours=True, pods=(driver.uid, seen.uid), paused=NOW - 10), stopping=NOW - 20)
    view = node(state=State.POD_RESTART_REQUIRED, remembers=remembers, cordoned=True)
    view = msgspec.structs.replace(view, labels={**view.labels, names.DEPLOY_PLUGIN: "paused-for-driver-upgrade"})
    plan = ask(view, driver, seen, policy=rules, now=NOW + 86400).plan
    given = [action.labels.get(names.DEPLOY_PLUGIN) for action in plan.actions if isinstance(action, PatchNode)]
    assert "true" in given
