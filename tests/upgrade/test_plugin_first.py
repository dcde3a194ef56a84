"""The device plugin that stops before a driver goes, on paper: whatever keeps the driver gives its label back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.containers import ContainerProgress
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.upgrade.still_offered import waits_for
from tests.build import NOW, driver_pod, node, policy, record, validator
from tests.upgrade.one import ask


@pytest.mark.parametrize(("rules", "comes_back"), [
    (policy(auto_upgrade=False), False), (policy(auto_upgrade=False, absent="no ClusterPolicy"), True)])
def test_in_a_pause_the_label_stays_with_our_cordon(rules: UpgradePolicy, comes_back: bool) -> None:
    """The deletion of the driver pod may have been sent, and had no answer: what names the node would lose the driver."""
    driver, seen = driver_pod(), validator()
    remembers = msgspec.structs.replace(
        record(State.POD_RESTART_REQUIRED, ours=True, pods=(driver.uid, seen.uid), paused=NOW - 10), stopping=NOW - 20)
    view = node(state=State.POD_RESTART_REQUIRED, remembers=remembers, cordoned=True)
    view = msgspec.structs.replace(view, labels={**view.labels, names.DEPLOY_PLUGIN: "paused-for-driver-upgrade"})
    plan = ask(view, driver, seen, policy=rules, now=NOW + 86400).plan
    given = [action.labels.get(names.DEPLOY_PLUGIN) for action in plan.actions if isinstance(action, PatchNode)]
    assert ("true" in given) is comes_back


@pytest.mark.parametrize(("plugin", "offers"), [
    ({"ready": True, "begun": True}, True),
    ({"begun": True, "progress": ContainerProgress("nvidia-device-plugin", "CrashLoopBackOff", 3)}, True),
    ({"begun": True, "progress": ContainerProgress("toolkit-validation", init=1, inits=1)}, False),
    ({"progress": ContainerProgress("toolkit-validation", "PodInitializing", init=1, inits=1)}, False),
])
def test_a_plugin_offers_nothing_before_its_own_container_runs(plugin: dict[str, Any], offers: bool) -> None:
    told = sentence(Hold(waits_for(PodView("ns", "plugin", **plugin)), NOW))
    assert ("does not offer its GPUs yet" in told) is not offers
    assert ("which offers its GPUs" in told) is offers
