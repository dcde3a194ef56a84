"""Pods that hold the driver without asking for a GPU: held for, evicted or ignored, as the settings say."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.model.explain import sentence
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import DeviceHolders, RolloutSettings
from gpuward.model.states import State
from gpuward.model.views import PodView
from tests.build import NAMESPACE, device_plugin, driver_pod, gpu_pod, node, pod, policy, under_way
from tests.upgrade.one import ask

HOLD, EVICT, IGNORE = DeviceHolders.HOLD, DeviceHolders.EVICT, DeviceHolders.IGNORE
OLD, QUEUED = driver_pod(), node(state=State.UPGRADE_REQUIRED)
DRAIN, HARD_DRAIN = DrainSettings(enable=True), DrainSettings(enable=True, force=True)


def holder(**rest: Any) -> PodView:
    """Build a pod that mounts the device of a GPU."""
    return pod(name="monitor", holds="hostPath /dev/nvidia0", **rest)


def holders(what: DeviceHolders, **rest: Any) -> UpgradePolicy:
    return policy(rollout=RolloutSettings(device_holders=what), **rest)


def test_a_holder_keeps_its_node_from_starting_and_is_named_with_its_owner() -> None:
    answer = ask(QUEUED, OLD, holder())
    assert answer.entered == []
    assert sentence(answer.hold) == (
        "pod default/monitor of ReplicaSet monitor-owner holds the driver without asking for a GPU (hostPath /dev/nvidia0)"
    )
    assert "of no owner" in sentence(ask(QUEUED, OLD, holder(owner=None)).hold)


@pytest.mark.parametrize(
    ("who", "rules", "reason"),
    [
        (holder(), holders(HOLD), Reason.HELD_DEVICES),
        (holder(), holders(EVICT), None),
        (holder(), holders(IGNORE), None),
        (holder(owner=None), holders(EVICT), Reason.PROTECTED_PODS),
        (holder(owner=None), holders(EVICT, force=True), None),
        (holder(owner="DaemonSet"), holders(HOLD), Reason.HELD_DEVICES),
        (holder(owner="DaemonSet"), holders(EVICT), Reason.PROTECTED_PODS),
        (holder(owner="DaemonSet"), holders(IGNORE), None),
        (holder(), holders(HOLD, drain=DRAIN), None),
        (holder(owner=None), holders(HOLD, drain=DRAIN), Reason.PROTECTED_PODS),
        (holder(owner=None), holders(HOLD, drain=HARD_DRAIN), None),
        (holder(owner="DaemonSet"), holders(HOLD, drain=HARD_DRAIN), Reason.HELD_DEVICES),
        (holder(phase="Succeeded"), holders(HOLD), None),
        (holder(deleting=True), holders(HOLD), None),
        (holder(namespace=NAMESPACE, owner="DaemonSet"), holders(HOLD), None),
        (holder(namespace=NAMESPACE), holders(EVICT), None),
        (holder(uses_gpu=True), holders(HOLD), None),
    ],
    ids=[
        "hold", "evict", "ignore", "evict a bare one", "evict a bare one by force", "hold for a DaemonSet's",
        "evict a DaemonSet's", "ignore a DaemonSet's", "a drain takes it", "a drain may not take a bare one",
        "a drain takes a bare one by force", "no drain takes a DaemonSet's", "it has ended", "it is going", "ours",
        "ours are not evicted", "it is a GPU pod as well",
    ],
)
def test_who_holds_a_node_up(who: PodView, rules: UpgradePolicy, reason: Reason | None) -> None:
    answer = ask(QUEUED, OLD, who, policy=rules)
    assert (answer.reason if not answer.entered else None) is reason
    assert bool(answer.entered) is (reason is None)


@pytest.mark.parametrize(("what", "evicted"), [(EVICT, ["monitor", "train"]), (IGNORE, ["train"])])
def test_a_holder_is_evicted_with_the_gpu_pods_or_left_alone(what: DeviceHolders, evicted: list[str]) -> None:
    assert sorted(ask(under_way(State.POD_DELETION_REQUIRED), OLD, holder(), gpu_pod(), policy=holders(what)).evicted) == evicted


def test_an_ignored_holder_does_not_keep_the_driver_from_being_replaced() -> None:
    assert ask(under_way(State.POD_RESTART_REQUIRED), OLD, holder(), policy=holders(IGNORE)).deleted == [OLD.name]


def test_a_holder_that_comes_when_its_node_is_under_way_fails_it_and_names_the_setting() -> None:
    answer = ask(under_way(State.POD_DELETION_REQUIRED), OLD, holder(), gpu_pod())
    assert (answer.entered, answer.evicted) == (["upgrade-failed"], [])
    assert answer.record.failure is not None
    assert "set deviceHolders: Evict or Ignore in the RolloutPolicy" in answer.record.failure.cause
    assert answer.patch.unschedulable is False


def test_a_drain_takes_a_holder_that_comes_late() -> None:
    answer = ask(under_way(State.POD_DELETION_REQUIRED), OLD, holder(), policy=holders(HOLD, drain=DRAIN))
    assert (answer.entered, answer.evicted) == (["drain-required"], ["monitor"])


def test_a_holder_that_is_in_the_way_of_a_mere_restart_is_none() -> None:
    assert ask(QUEUED, driver_pod(config_digest="d"), device_plugin(), holder(), digest="d").entered == ["pod-restart-required"]
