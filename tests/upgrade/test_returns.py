"""Pods that use the node's GPUs and come back before its driver is replaced: evicted again, but not for ever."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.actions import DeletePod
from gpuward.model.record import Record
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.upgrade.decide import decide
from gpuward.upgrade.driver_restart import RETURNS_TOLERATED
from tests import build
from tests.build import NOW, driver_pod, gpu_pod, node, policy, record, validator
from tests.upgrade import world
from tests.upgrade.one import Answer, ask

RESTART, DELETION = State.POD_RESTART_REQUIRED, State.POD_DELETION_REQUIRED
OLD = driver_pod()


def back(returns: int, *pods: PodView) -> Answer:
    """Ask about a node whose driver is to be replaced and that was emptied anew so many times."""
    remembers = msgspec.structs.replace(record(RESTART, ours=True), returns=returns)
    return ask(node(state=RESTART, remembers=remembers, cordoned=True), OLD, *(pods or (gpu_pod(),)))


@pytest.mark.parametrize("returns", range(RETURNS_TOLERATED))
def test_a_pod_that_comes_back_is_evicted_again_and_counted(returns: int) -> None:
    answer = back(returns)
    assert (answer.entered, answer.evicted) == (["pod-deletion-required"], ["train"])
    assert answer.record.returns == returns + 1


def test_after_five_times_the_node_fails_and_names_the_pod() -> None:
    answer = back(RETURNS_TOLERATED)
    assert (answer.entered, answer.evicted, answer.deleted) == (["upgrade-failed"], [], [])
    assert answer.record.failure is not None
    assert "come back to the cordoned node again and again: default/train" in answer.record.failure.cause
    assert answer.patch.unschedulable is False, "its driver was not touched: it serves on"


def test_a_pod_that_may_not_be_evicted_is_named_as_well() -> None:
    answer = back(RETURNS_TOLERATED, gpu_pod(name="agent", owner="DaemonSet"))
    assert answer.record.failure is not None
    assert answer.record.failure.cause.endswith("default/agent")


@pytest.mark.parametrize(
    ("restart", "entered"), [("", ["pod-deletion-required"]), ("d", []), ("another", ["upgrade-required"])],
    ids=["full", "mere restart", "of another driver"],
)
def test_pods_that_come_while_the_new_driver_starts_go_unless_it_is_the_same_driver(restart: str, entered: list[str]) -> None:
    starting = driver_pod(driver="560", created=NOW - 30, ready=False, config_digest="d")
    view = node(state=RESTART, remembers=record(RESTART, ours=True, restart=restart), cordoned=True)
    assert ask(view, starting, gpu_pod(), digest="d").entered == entered


def test_what_was_counted_is_kept_while_the_node_is_emptied() -> None:
    remembers = msgspec.structs.replace(record(DELETION, ours=True), returns=4)
    assert ask(node(state=DELETION, remembers=remembers, cordoned=True), OLD).record.returns == 4


@pytest.mark.parametrize(
    ("before", "pods"),
    [
        (record(State.VALIDATION_REQUIRED, ours=True), [driver_pod(driver="560", created=NOW - 30), validator(created=NOW - 20)]),
        (record(State.UPGRADE_REQUIRED), [OLD]),
    ],
    ids=["done", "admitted"],
)
def test_the_count_ends_with_the_upgrade_and_starts_with_the_next(before: Record, pods: list[PodView]) -> None:
    remembers = msgspec.structs.replace(before, returns=5)
    view = node(state=before.state, remembers=remembers, cordoned=before.cordon is not None)
    assert ask(view, *pods).record.returns == 0


def test_a_pod_that_comes_back_for_ever_ends_the_rollout_of_its_node_only() -> None:
    """Somebody binds a pod to n0 by its name each time that its driver is about to go; the last look sees it."""
    snapshot, now = build.fleet(2), NOW
    once = policy(parallel=2, rollout=RolloutSettings(retries=0))
    for _ in range(40):
        for action in decide(snapshot, once, now).actions:
            if isinstance(action, DeletePod) and action.last_look and action.node == "n0":
                snapshot = world.with_pods(snapshot, "n0", [*snapshot.pods["n0"], gpu_pod()])
                with pytest.raises(world.Refused, match="the last look"):
                    world.perform(snapshot, action)
            else:
                snapshot = world.perform(snapshot, action)
        snapshot, now = world.turn(snapshot, now), now + 1
    assert [view.state for view in snapshot.nodes.values()] == [State.FAILED, State.DONE]
    assert OLD in snapshot.pods["n0"]
    assert not any(view.unschedulable for view in snapshot.nodes.values())
