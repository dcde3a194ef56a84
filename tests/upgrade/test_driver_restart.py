"""Replacing the driver, seeing it validated, and what becomes of failures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import DeletePod, LastLook
from gpuward.model.explain import arguments
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import ADMITTED, NOW, driver_pod, gpu_pod, node, record, under_way, validator
from tests.upgrade import world
from tests.upgrade.one import Answer, ask

RESTART, VALIDATION, FAILED = State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.FAILED
RESTARTING, VALIDATING = under_way(RESTART), under_way(VALIDATION)
OLD = driver_pod()
NEW = driver_pod(driver="560", created=NOW - 30)
STARTING = driver_pod(driver="560", created=NOW - 30, ready=False)
GOING = driver_pod(deleting=True)
FRESH = validator(created=NOW - 20)
TO_DONE = ["uncordon-required", "upgrade-done"]


# Restart.


@pytest.mark.weakness(17)
@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], Reason.DRIVER_POD_MISSING),
        ([driver_pod(deleting=True)], Reason.DRIVER_STOPPING),
        ([driver_pod(deleting=True), gpu_pod()], Reason.DRIVER_STOPPING),
        ([STARTING], Reason.DRIVER_STARTING),
        ([driver_pod(name="a"), driver_pod(name="b", orphan=True)], Reason.TWO_DRIVER_PODS),
        ([NEW, driver_pod(name="b", orphan=True)], Reason.TWO_DRIVER_PODS),
    ],
)
def test_a_restart_waits(pods: list[PodView], reason: Reason) -> None:
    answer = ask(RESTARTING, *pods)
    assert answer.reason is reason
    assert answer.plan.actions == ()


@pytest.mark.parametrize(("passed", "lasts", "again"), [(299, False, 300), (300, True, 1800)])
def test_people_are_told_of_a_driver_pod_that_is_not_made_long_before_the_node_fails(
    passed: int, lasts: bool, again: int
) -> None:
    answer = ask(under_way(RESTART, since=NOW - passed))
    hold = build.hold_of(answer.plan)
    assert (hold.reason, hold.lasts) == (Reason.DRIVER_POD_MISSING, lasts)
    assert answer.plan.wake_at == NOW - passed + again


def test_a_node_under_way_that_is_not_ready_says_until_when_it_is_waited_for() -> None:
    hold = build.hold_of(ask(under_way(RESTART, ready=False), GOING).plan)
    assert (hold.reason, hold.until) == (Reason.NODE_NOT_READY, ADMITTED + 1800)


def test_a_restart_waits_for_a_template_to_settle() -> None:
    assert ask(RESTARTING, OLD, settled=False).reason is Reason.TEMPLATE_SETTLING


@pytest.mark.parametrize("pod", [OLD, driver_pod(orphan=True), driver_pod(driver="555", ready=False)])
def test_a_driver_pod_out_of_step_is_deleted_after_a_last_look(pod: PodView) -> None:
    answer = ask(RESTARTING, pod)
    assert answer.plan.actions == (DeletePod(pod.ref, "n0", last_look=LastLook(), why="its template is out of date"),)
    assert answer.reason is Reason.DRIVER_STOPPING


@pytest.mark.parametrize(("goes", "deleted"), [(False, []), (True, ["orphan"])])
def test_an_orphan_stays_while_a_daemonset_that_is_to_go_would_make_the_next_pod_too(goes: bool, deleted: list[str]) -> None:
    seen = build.cluster([RESTARTING], [driver_pod(name="orphan", orphan=True)])
    other = msgspec.structs.replace(build.daemonset(name="nvidia-driver-daemonset", uid="uid-compiled"), deleting=goes)
    plan = decide(msgspec.structs.replace(seen, daemonsets=(*seen.daemonsets, other)), build.policy(), NOW)
    assert [action.pod.name for action in plan.actions if isinstance(action, DeletePod)] == deleted
    assert build.hold_of(plan).reason is (Reason.DRIVER_STOPPING if goes else Reason.TEMPLATE_SETTLING)


def test_a_gpu_pod_that_turned_up_sends_the_node_back() -> None:
    answer = ask(RESTARTING, OLD, gpu_pod())
    assert answer.entered == ["pod-deletion-required"]
    assert answer.deleted == []
    assert answer.evicted == ["train"]


def test_before_a_driver_pod_is_deleted_a_lifted_cordon_is_put_back() -> None:
    answer = ask(under_way(RESTART, cordoned=False), OLD)
    assert answer.patch.unschedulable is True
    assert answer.deleted == [OLD.name]
    assert answer.plan.actions[0] is answer.patch


def test_a_driver_that_is_ready_goes_on_to_validation_and_starts_its_clock() -> None:
    answer = ask(RESTARTING, NEW, validator(ready=False, created=NOW - 20))
    assert answer.entered == ["validation-required"]
    assert answer.annotations == {names.VALIDATION_SINCE: str(int(NOW))}
    assert answer.plan.wake_at == NOW + 600


@pytest.mark.parametrize(("restarts", "state"), [(10, RESTART), (11, FAILED)])
def test_a_driver_that_restarted_too_often_has_failed(restarts: int, state: State) -> None:
    answer = ask(RESTARTING, driver_pod(driver="560", ready=False, restarts=restarts))
    assert answer.state is state


def test_a_node_whose_driver_failed_stays_cordoned() -> None:
    answer = ask(RESTARTING, driver_pod(driver="560", ready=False, restarts=11))
    assert answer.patch.unschedulable is None
    assert answer.record.cordon is CordonOwner.GPUWARD
    assert answer.failure == Failure(RESTART, "driver pod driver-560-n0 restarted 11 times", NOW)


def test_a_driver_out_of_step_is_replaced_however_often_it_restarted() -> None:
    assert ask(RESTARTING, driver_pod(ready=False, restarts=99)).deleted == [OLD.name]


SAFE = {names.SAFE_LOAD: "true"}


@pytest.mark.parametrize("state", [RESTART, VALIDATION])
def test_a_driver_that_waits_for_leave_to_load_gets_it_and_is_not_deleted(state: State) -> None:
    answer = ask(under_way(state, annotations=SAFE), STARTING, validator(created=NOW, ready=False))
    assert answer.annotations == {names.SAFE_LOAD: None}
    assert answer.deleted == []
    loading = ask(under_way(state), STARTING, validator(created=NOW, ready=False))
    assert loading.plan.actions == ()


def test_leave_to_load_comes_before_a_fresh_pod_that_somebody_asked_for() -> None:
    answer = ask(under_way(RESTART, forced=True, annotations=SAFE), driver_pod(driver="560", ready=False))
    assert answer.annotations == {names.SAFE_LOAD: None}
    assert answer.deleted == []


def test_a_safe_load_is_no_request_for_a_fresh_pod() -> None:
    answer = ask(node(annotations=SAFE), driver_pod(driver="560", ready=False))
    assert answer.state is RESTART
    assert not answer.record.forced
    assert answer.deleted == []
    assert answer.annotations == {names.SAFE_LOAD: None}


@pytest.mark.parametrize(
    ("forced", "pod", "deleted"),
    [
        (True, driver_pod(driver="560", ready=False), True),
        (True, driver_pod(driver="560"), False),
        (True, driver_pod(driver="560", ready=False, created=ADMITTED), False),
        (False, driver_pod(driver="560", ready=False), False),
    ],
    ids=["old and not ready", "ready", "young", "nobody asked"],
)
def test_who_asks_for_an_upgrade_gets_a_driver_pod_that_is_not_ready_replaced(forced: bool, pod: PodView, deleted: bool) -> None:
    assert bool(ask(under_way(RESTART, forced=forced), pod).deleted) is deleted


def test_a_clock_ahead_of_the_api_servers_does_not_make_new_pods_look_old() -> None:
    hung = driver_pod(driver="560", ready=False)
    ahead = under_way(RESTART, forced=True, started=NOW + 300, pods=(hung.uid,))
    assert ask(ahead, STARTING).deleted == []
    assert ask(ahead, hung).deleted == [hung.name]
    assert ask(under_way(RESTART, forced=True, started=NOW + 300, pods=()), STARTING).deleted == [], "it had none"
    checking = under_way(VALIDATION, forced=True, started=NOW + 300, pods=(OLD.uid,))
    assert ask(checking, NEW, FRESH).entered == TO_DONE


def test_a_driver_pod_of_the_very_second_of_the_admission_is_not_taken_for_the_one_before() -> None:
    hung, fresh = (driver_pod(driver="560", ready=False, created=ADMITTED, name=name) for name in ("hung", "fresh"))
    admitted = under_way(RESTART, forced=True, pods=(hung.uid,))
    assert ask(admitted, hung).deleted == [hung.name]
    assert ask(admitted, fresh).deleted == []


# Validation.


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([NEW], Reason.VALIDATOR_MISSING),
        ([NEW, validator(deleting=True)], Reason.VALIDATOR_MISSING),
        ([NEW, validator(created=NOW, phase="Failed", ready=False)], Reason.VALIDATOR_MISSING),
        ([NEW, validator(created=NOW, ready=False)], Reason.VALIDATOR_STARTING),
        ([STARTING, FRESH], Reason.DRIVER_STARTING),
        ([NEW, validator()], Reason.VALIDATOR_REPLACING),
        ([NEW, validator(ready=False)], Reason.VALIDATOR_REPLACING),
    ],
)
def test_validation_waits(pods: list[PodView], reason: Reason) -> None:
    answer = ask(VALIDATING, *pods)
    assert (answer.state, answer.reason) == (VALIDATION, reason)
    assert answer.deleted == (["validator-n0"] if reason is Reason.VALIDATOR_REPLACING else [])


@pytest.mark.parametrize(("pods", "given"), [
    ([OLD, validator()], [None]),
    ([GOING, validator()], [1]),
    ([GOING, validator(grace=0.0)], [0]),
    ([GOING, validator(deleting=True)], []),
    ([GOING, validator(ready=False)], []),
    ([STARTING, validator()], []),
], ids=["the driver is to go", "the driver goes", "no grace", "it goes, too", "it waits", "the driver is there"])
def test_a_validator_pod_that_idles_goes_with_the_driver_and_soon(pods: list[PodView], given: list[int | None]) -> None:
    answer = ask(RESTARTING, *pods)
    assert [action.grace for action in answer.plan.actions if isinstance(action, DeletePod)] == given


def test_validation_ends_when_a_validator_that_saw_the_driver_is_ready() -> None:
    answer = ask(under_way(VALIDATION, annotations={names.VALIDATION_SINCE: "17"}), NEW, FRESH)
    assert answer.entered == TO_DONE
    assert answer.annotations == {names.VALIDATION_SINCE: None}
    assert answer.patch.unschedulable is False


def test_a_driver_that_waits_is_named_where_the_validator_does_not() -> None:
    assert arguments(ask(VALIDATING, STARTING, FRESH).hold.what)["pod"] == STARTING.name


@pytest.mark.parametrize("pods", [[], [driver_pod(driver="560", deleting=True), FRESH]])
def test_validation_goes_back_when_the_driver_is_lost(pods: list[PodView]) -> None:
    assert ask(VALIDATING, *pods).entered == ["pod-restart-required"]


def test_validation_goes_back_when_the_target_moved_on() -> None:
    answer = ask(VALIDATING, driver_pod(driver="555", created=NOW - 30), FRESH)
    assert answer.entered == ["pod-restart-required"]
    assert answer.deleted == ["driver-555-n0"]


def test_a_template_that_has_not_settled_vouches_for_nobody() -> None:
    answer = ask(VALIDATING, NEW, FRESH, settled=False)
    assert (answer.state, answer.reason) == (VALIDATION, Reason.TEMPLATE_SETTLING)


@pytest.mark.weakness(1)
@pytest.mark.parametrize(
    ("pods", "cause"),
    [
        ([NEW, validator(created=NOW, ready=False)], "still waits for pod validator-n0 to confirm the new driver, after 600 s"),
        ([NEW], "still waits for a validator pod on this node, after 600 s"),
        ([STARTING, FRESH], "still waits for driver pod driver-560-n0 to get ready, after 600 s"),
    ],
)
def test_validation_fails_after_ten_minutes_and_the_node_stays_cordoned(pods: list[PodView], cause: str) -> None:
    assert ask(VALIDATING, *pods, now=ADMITTED + 599.9).plan.wake_at == ADMITTED + 600
    answer = ask(under_way(VALIDATION, annotations={names.VALIDATION_SINCE: "17"}), *pods, now=ADMITTED + 600)
    assert answer.entered == ["upgrade-failed"]
    assert answer.failure == Failure(VALIDATION, cause, ADMITTED + 600)
    assert answer.patch.unschedulable is None
    assert answer.annotations == {names.VALIDATION_SINCE: None}


# Failed.


ONCE = build.policy(rollout=RolloutSettings(retries=0))


def failed(in_step: State = RESTART, **rest: Any) -> NodeView:
    return under_way(FAILED, failed=in_step, **rest)


def test_a_failed_node_says_in_which_step_and_why() -> None:
    answer = ask(failed(), OLD, policy=ONCE)
    assert answer.plan.actions == ()
    assert (answer.reason, arguments(answer.hold.what)) == (Reason.FAILED, {"cause": "it broke", "step": RESTART, "now": ""})


@pytest.mark.weakness(1)
@pytest.mark.parametrize("pods", [[NEW, validator()], [NEW], [NEW, validator(created=NOW, ready=False)], [STARTING, FRESH], []])
def test_a_ready_driver_alone_does_not_make_a_failure_good(pods: list[PodView]) -> None:
    assert ask(failed(VALIDATION), *pods, policy=ONCE).state is FAILED


def test_a_driver_that_is_freshly_validated_does() -> None:
    answer = ask(failed(), NEW, FRESH, policy=ONCE)
    assert answer.entered == ["validation-required", *TO_DONE]
    assert answer.patch.unschedulable is False
    assert answer.record.failure is None


def test_a_cordon_that_somebody_put_on_a_failed_node_survives_its_recovery() -> None:
    serving = node(state=FAILED, remembers=record(FAILED, failed=State.POD_DELETION_REQUIRED), cordoned=True)
    answer = ask(serving, NEW, FRESH)
    assert answer.state is State.DONE
    assert answer.patch.unschedulable is None


@pytest.mark.parametrize(("in_step", "forced"), [(RESTART, True), (VALIDATION, True), (State.POD_DELETION_REQUIRED, False)])
def test_a_new_target_is_another_chance(in_step: State, forced: bool) -> None:
    remembers = record(FAILED, failed=in_step, ours=forced, target="555")
    answer = ask(node(state=FAILED, remembers=remembers, cordoned=forced), OLD, gpu_pod())
    assert answer.entered[0] == "upgrade-required"
    assert answer.record.forced is forced
    assert answer.record.failure is None


@pytest.mark.parametrize("state", [FAILED, State.UPGRADE_REQUIRED])
def test_a_driver_pod_that_somebody_replaced_after_a_failure_is_validated_and_not_trusted(state: State) -> None:
    serving = node(state=state, remembers=record(state, failed=State.POD_DELETION_REQUIRED))
    answer = ask(serving, driver_pod(driver="560", created=NOW - 10), validator(), now=NOW + 1000)
    assert answer.state is VALIDATION
    assert answer.record.forced


def test_a_cordon_of_ours_is_not_left_behind_when_the_target_goes_back_to_a_driver_that_nobody_validated() -> None:
    """It failed while it was emptied a second time, for a newer target, after its driver was replaced once."""
    view = under_way(FAILED, failed=State.POD_DELETION_REQUIRED, target="570")
    end = world.rollout(build.cluster([view], [NEW, validator()]), build.policy())
    assert end.entered("n0")[-3:] == ["validation-required", *TO_DONE]
    assert not end.end.nodes["n0"].unschedulable


def test_a_driver_that_crashed_is_not_taken_for_good_after_a_pause_either() -> None:
    crashing = driver_pod(driver="555", created=NOW - 30, ready=False)
    queued = ask(failed(foreign=True, target="555"), crashing, policy=build.policy(admit=False))
    assert queued.state is State.UPGRADE_REQUIRED
    paused = node(remembers=queued.record, cordoned=True)
    assert "upgrade-done" not in ask(paused, crashing, target="555").entered


def test_going_back_to_the_target_that_failed_does_not_pass_for_success() -> None:
    former, crashing = (driver_pod(driver=driver, created=NOW - 30, ready=False) for driver in ("555", "560"))
    queued: Answer = ask(failed(target="555"), former, policy=build.policy(parallel=0))
    assert queued.entered[0] == "upgrade-required"
    waiting = under_way(State.UPGRADE_REQUIRED, failed=RESTART, forced=True)
    again = ask(waiting, crashing, policy=build.policy(parallel=0))
    assert "upgrade-done" not in again.entered
    assert again.state is RESTART
    assert again.deleted == [crashing.name]


def test_a_rolled_back_target_makes_a_failure_good_that_touched_nothing() -> None:
    serving = node(state=FAILED, remembers=record(FAILED, failed=State.POD_DELETION_REQUIRED, target="570"))
    answer = ask(serving, driver_pod(driver="560"))
    assert answer.entered == ["upgrade-required", "upgrade-done"]


# Done and unknown.


@pytest.mark.parametrize("state", [State.UNKNOWN, State.DONE])
@pytest.mark.parametrize(
    ("pods", "entered"),
    [
        ([driver_pod(driver="550")], ["upgrade-required"]),
        ([driver_pod(driver="560")], []),
        ([driver_pod(driver="550", orphan=True)], []),
        ([driver_pod(driver="560", ready=False)], []),
    ],
)
def test_a_node_is_marked_when_its_driver_is_out_of_step(state: State, pods: list[PodView], entered: list[str]) -> None:
    answer = ask(node(state=state), *pods, policy=build.policy(unavailable=0))
    marked_done = ["upgrade-done"] if state is State.UNKNOWN and not entered else []
    assert answer.entered == entered + marked_done


def test_a_finished_node_costs_nothing() -> None:
    answer = ask(node(state=State.DONE, remembers=record(State.DONE)), NEW, FRESH)
    assert answer.plan.actions == ()
    assert (answer.reason, answer.plan.wake_at) == (None, None)


@pytest.mark.parametrize("state", [State.UNKNOWN, State.DONE])
def test_a_template_that_has_not_settled_is_not_taken_for_in_sync(state: State) -> None:
    answer = ask(node(state=state), OLD, settled=False)
    assert (answer.plan.actions, answer.reason) == ((), Reason.TEMPLATE_SETTLING)
