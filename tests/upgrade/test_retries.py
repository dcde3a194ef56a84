"""What failed is tried again by itself some times, ever later; then it is left to people."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.explain import arguments
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure, Record
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade import world
from tests.upgrade.one import ask

FAILED, RESTART, DELETION, QUEUED = (
    State.FAILED, State.POD_RESTART_REQUIRED, State.POD_DELETION_REQUIRED, State.UPGRADE_REQUIRED,
)
OLD = driver_pod()
CRASHING = driver_pod(driver="560", created=NOW - 30, ready=False, restarts=11)
NOBODY_STARTS = policy(unavailable=0)


def failed_at(step: State = DELETION, attempts: int = 1, target: str = "560") -> NodeView:
    """Build a node that failed NOW, for the first time an hour ago if more than once."""
    failure = Failure(step, "it broke", NOW, attempts, NOW - 3600 if attempts > 1 else 0.0)
    touched = step not in UNDISTURBED
    remembers = msgspec.structs.replace(record(FAILED, ours=touched, target=target), failure=failure)
    return node(state=FAILED, remembers=remembers, cordoned=touched)


@pytest.mark.weakness(6)
@pytest.mark.parametrize(("attempts", "pause"), [(1, 60), (2, 120), (3, 240)])
def test_it_is_tried_again_after_a_pause_that_doubles(attempts: int, pause: int) -> None:
    before = ask(failed_at(attempts=attempts), OLD, gpu_pod(), now=NOW + pause - 0.1)
    told = arguments(before.hold.what)
    assert (before.reason, told["retry"], told["retries"]) == (Reason.RETRY_LATER, attempts, 3)
    assert (before.plan.actions, before.plan.wake_at, before.hold.until) == ((), NOW + pause, NOW + pause)
    assert ask(failed_at(attempts=attempts), OLD, gpu_pod(), now=NOW + pause).entered[0] == "upgrade-required"


def test_the_pause_is_a_setting_and_does_not_overflow() -> None:
    patient = policy(rollout=RolloutSettings(retries=10**6, retry_backoff=7))
    assert ask(failed_at(), OLD, policy=patient).plan.wake_at == NOW + 7
    assert ask(failed_at(attempts=10**5), OLD, policy=patient).plan.wake_at == NOW + 7 * 2**10


@pytest.mark.parametrize(("retries", "attempts"), [(3, 4), (0, 1)])
def test_after_the_last_retry_it_is_left_to_people(retries: int, attempts: int) -> None:
    answer = ask(failed_at(attempts=attempts), OLD, policy=policy(rollout=RolloutSettings(retries=retries)), now=NOW + 1e6)
    assert (answer.reason, answer.plan.actions, answer.plan.wake_at) == (Reason.FAILED, (), None)


@pytest.mark.parametrize(("step", "forced"), [(DELETION, False), (State.DRAIN_REQUIRED, False), (RESTART, True)])
def test_a_retry_asks_for_a_validation_only_where_the_driver_was_touched(step: State, forced: bool) -> None:
    assert ask(failed_at(step), OLD, now=NOW + 60, policy=NOBODY_STARTS).record.forced is forced


@pytest.mark.parametrize("step", [DELETION, State.DRAIN_REQUIRED])
def test_it_is_not_tried_again_while_a_pod_that_was_made_to_go_may_still_be_ending(step: State) -> None:
    """It would evict the pod that came after that one, too, and wait for both in vain."""
    going, late = gpu_pod(name="first", deleting=True, grace=7200.0), gpu_pod(name="second")
    answer = ask(failed_at(step), OLD, going, late, now=NOW + 7199)
    assert (answer.reason, answer.hold.until, answer.plan.actions) == (Reason.RETRY_LATER, NOW + 7200, ())
    assert ask(failed_at(step), OLD, going, late, now=NOW + 7200).entered[0] == "upgrade-required", "it does not end in its time"
    assert ask(failed_at(step), OLD, late, now=NOW + 60).entered[0] == "upgrade-required"
    assert ask(failed_at(RESTART), OLD, going, now=NOW + 60).entered[0] == "upgrade-required"


@pytest.mark.parametrize(("changes", "pods", "rules", "reason"), [
    ({}, [OLD, gpu_pod(owner=None)], policy(), Reason.PROTECTED_PODS),
    ({"labels": {names.UPGRADE_STATE: str(FAILED), names.UPGRADE_SKIP: "true"}}, [OLD], policy(), Reason.SKIPPED),
    ({"ready": False}, [OLD], policy(), Reason.NODE_NOT_READY),
    ({"deleting": True}, [OLD], policy(), Reason.NODE_GONE),
    ({}, [], policy(), Reason.DRIVER_POD_MISSING),
    ({}, [driver_pod("", "560", ready=False, waiting="Unschedulable", meant_for="n0")], policy(), Reason.DRIVER_UNPLACED),
    ({}, [OLD], policy(admit=False), Reason.INVALID_POLICY),
])
@pytest.mark.parametrize("step", [DELETION, RESTART])
def test_a_node_that_may_not_be_tried_again_has_failed_still(
    changes: dict[str, Any], pods: list[PodView], rules: UpgradePolicy, reason: Reason, step: State
) -> None:
    view = msgspec.structs.replace(failed_at(step), **changes)
    answer = ask(view, *pods, policy=rules, now=NOW + 60)
    assert (answer.entered, answer.state, answer.reason) == ([], FAILED, reason)
    assert answer.plan.counts.failed == 1


def test_a_retry_waits_in_the_queue_for_the_others() -> None:
    answer = ask(failed_at(), OLD, now=NOW + 60, policy=NOBODY_STARTS)
    assert (answer.entered, answer.reason) == (["upgrade-required"], Reason.NO_NODE_MAY_START)


@pytest.mark.parametrize(("confirmed", "lifted"), [(False, None), (True, False)])
def test_a_retry_that_fails_before_the_driver_is_touched_leaves_one_that_failed_out_of_service(
    confirmed: bool, lifted: bool | None
) -> None:
    driver, seen = driver_pod(driver="560", created=NOW - 300), validator(created=NOW - 200, ready=confirmed)
    view = under_way(DELETION, forced=True, failed=State.VALIDATION_REQUIRED, pods=(driver.uid, seen.uid))
    answer = ask(view, driver, seen, gpu_pod(owner=None))
    assert (answer.state, answer.patch.unschedulable) == (FAILED, lifted)


@pytest.mark.parametrize(("confirmed", "entered"), [(False, []), (True, ["validation-required"])])
def test_it_goes_back_into_service_once_its_driver_is_confirmed_though_no_retry_is_left(
    confirmed: bool, entered: list[str]
) -> None:
    driver, seen = driver_pod(driver="560", created=NOW - 300), validator(created=NOW - 200, ready=confirmed)
    view = under_way(FAILED, forced=True, failed=DELETION, pods=(driver.uid, seen.uid))
    answer = ask(view, driver, seen, gpu_pod(owner=None), policy=policy(rollout=RolloutSettings(retries=0)))
    assert (answer.entered, answer.deleted) == (entered, [seen.name] if confirmed else [])


def again(remembers: Record) -> Failure | None:
    """Let a node that is emptied find a pod that may not go, and return the failure that it remembers."""
    view = node(state=DELETION, remembers=msgspec.structs.replace(remembers, state=DELETION))
    return ask(view, OLD, gpu_pod(owner=None), now=NOW + 500).record.failure


def test_attempts_are_counted_over_retries_and_the_first_is_remembered() -> None:
    once = again(record(DELETION, since=NOW, started=NOW))
    assert once is not None
    assert (once.attempts, once.first, once.at) == (1, 0.0, NOW + 500)
    retried = ask(failed_at(), OLD, gpu_pod(), now=NOW + 60).record
    twice = again(retried)
    assert twice is not None
    assert (twice.attempts, twice.first, twice.at) == (2, NOW, NOW + 500)
    thrice = again(msgspec.structs.replace(retried, failure=twice))
    assert thrice is not None
    assert (thrice.attempts, thrice.first) == (3, NOW)


def test_relabelling_by_hand_counts_from_the_start() -> None:
    remembers = failed_at(attempts=4).record
    assert ask(node(state=QUEUED, remembers=remembers), OLD, policy=NOBODY_STARTS).record.failure is None


def test_a_new_target_counts_from_the_start() -> None:
    assert ask(failed_at(attempts=4, target="555"), OLD, gpu_pod()).record.failure is None


def test_a_success_counts_from_the_start() -> None:
    fresh = [driver_pod(driver="560", created=NOW - 30), validator(created=NOW - 20)]
    answer = ask(failed_at(RESTART, attempts=4), *fresh)
    assert (answer.state, answer.record.failure) == (State.DONE, None)


def test_a_target_that_differs_in_labels_only_is_no_new_one() -> None:
    view = failed_at(attempts=4, target="550")
    assert ask(view, driver_pod(driver="540"), alike=["550", "560"]).reason is Reason.FAILED
    assert ask(view, driver_pod(driver="540"), alike=["540", "550"]).entered[0] == "upgrade-required"


def test_whole_retries_end_with_the_node_failed_and_counted() -> None:
    end = world.rollout(build.fleet(2), policy(), broken=["n1"])
    assert end.entered("n1").count("upgrade-failed") == 4
    view = end.end.nodes["n1"]
    assert view.record is not None
    assert view.record.failure is not None
    assert view.record.failure.attempts == 4
    assert view.record.failure.first < view.record.failure.at
    assert view.unschedulable


def test_a_retry_cures_what_has_mended_meanwhile() -> None:
    failed = world.rollout(build.fleet(1), policy(rollout=RolloutSettings(retries=0)), broken=["n0"])
    end = world.rollout(failed.end, policy(), now=failed.now + 3600)
    assert end.plan.nodes["n0"].state is State.DONE
    assert not end.end.nodes["n0"].unschedulable
    assert names.UPGRADE_RECORD in end.end.nodes["n0"].annotations


def test_nodes_that_failed_take_their_turn_last() -> None:
    failed = record(QUEUED, failed=DELETION)
    nodes = [node("n0", QUEUED, remembers=failed), node("n9", QUEUED)]
    snapshot = build.cluster(nodes, [driver_pod("n0"), driver_pod("n9"), gpu_pod("n9")])
    plan = decide(snapshot, policy(), NOW)
    assert plan.nodes["n9"].state is DELETION
    assert build.hold_of(plan, "n0").reason is Reason.PARALLEL_LIMIT
