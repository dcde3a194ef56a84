"""Every wait has its end: which one, from when it counts, and what becomes of the node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from gpuward import names
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.model.views import PodView
from tests.build import ADMITTED, NOW, PAUSED, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade.one import ask, asked

RESTART, VALIDATION, JOBS, DELETION, DRAINING = (
    State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED,
    State.DRAIN_REQUIRED,
)
OLD = driver_pod()
STARTING = driver_pod(driver="560", created=NOW - 30, ready=False)


def within(deadlines: Mapping[State, float], **rest: object) -> UpgradePolicy:
    """Build a policy with other deadlines."""
    return msgspec.structs.replace(policy(**rest), rollout=RolloutSettings(deadlines=deadlines))  # type: ignore[arg-type]


@pytest.mark.weakness(33)
@pytest.mark.parametrize(
    ("pods", "told"),
    [
        ([STARTING], "waits for driver pod driver-560-n0 to get ready"),
        ([msgspec.structs.replace(STARTING, waiting="ImagePullBackOff")],
         "waits for driver pod driver-560-n0, which does not start: ImagePullBackOff"),
        ([], "waits for the DaemonSet to make a driver pod on this node"),
        ([driver_pod(deleting=True)], "waits for driver pod driver-550-n0 to stop"),
        ([OLD], "waits for driver pod driver-550-n0 to stop"),
        ([STARTING, driver_pod(name="b", orphan=True)], "2 driver pods run on this node"),
    ],
    ids=["starting", "no image", "no pod", "terminating", "not deleted", "two"],
)
def test_a_driver_has_half_an_hour_to_come_and_then_its_node_fails_and_says_what_was_missing(
    pods: list[PodView], told: str
) -> None:
    before = ask(under_way(RESTART), *pods, now=ADMITTED + 1799.9)
    assert (before.state, before.hold.until, before.plan.wake_at) == (RESTART, ADMITTED + 1800, ADMITTED + 1800)
    answer = ask(under_way(RESTART), *pods, now=ADMITTED + 1800)
    untried = told.endswith("to stop")
    assert answer.failure == Failure(RESTART, f"still {told}, after 1800 s", ADMITTED + 1800, untried=untried)
    assert answer.patch.unschedulable is (False if OLD in pods else None), "it serves on where its driver still runs"
    assert answer.deleted == []


@pytest.mark.parametrize("state", [RESTART, VALIDATION])
@pytest.mark.parametrize("failed", [None, RESTART])
def test_a_node_that_got_another_driver_on_the_way_fails_with_that(state: State, failed: State | None) -> None:
    """It was sent to 555, which failed before, and has a pod of 560 by now: that has all of its time, and failed once."""
    on_its_way, created = under_way(state, target="555", failed=failed), ADMITTED + 300
    late = driver_pod(driver="560", created=created, ready=state is VALIDATION)
    seconds = 1800 if state is RESTART else 600
    waiting = ask(on_its_way, late, now=created + seconds - 0.1)
    assert (waiting.state, waiting.hold.until) == (state, created + seconds)
    answer = ask(on_its_way, late, now=created + seconds)
    assert (answer.state, answer.record.target, answer.patch.unschedulable) == (State.FAILED, "560", None)
    assert answer.failure is not None
    assert (answer.failure.state, answer.failure.attempts) == (state, 1)
    assert answer.reason is Reason.RETRY_LATER


def test_pods_of_another_driver_that_come_again_and_again_have_their_time_once() -> None:
    late = driver_pod(driver="560", created=ADMITTED + 3000, ready=False)
    assert ask(under_way(RESTART, target="555"), late, now=ADMITTED + 3599.9).hold.until == ADMITTED + 3600
    assert ask(under_way(RESTART, target="555"), late, now=ADMITTED + 3600).state is State.FAILED


def test_a_node_that_fails_before_it_got_another_driver_begins_anew_and_says_what_it_failed_in() -> None:
    answer = ask(under_way(RESTART, target="555"), driver_pod(deleting=True), now=ADMITTED + 1800)
    assert answer.entered[:2] == ["upgrade-failed", "upgrade-required"]
    assert [event.message for event in answer.patch.events if event.warning] == [
        "Driver upgrade failed in pod-restart-required: still waits for driver pod driver-550-n0 to stop, after 1800 s; the node "
        "is to have another driver by now, and begins anew with that"]


@pytest.mark.parametrize("state", [RESTART, VALIDATION])
def test_a_deadline_is_a_setting_and_zero_is_none(state: State) -> None:
    pods = [STARTING, validator(created=NOW, ready=False)]
    short = ask(under_way(state), *pods, policy=within({state: 61}))
    assert (short.state, short.plan.wake_at) == (state, ADMITTED + 61)
    assert ask(under_way(state), *pods, policy=within({state: 60})).state is State.FAILED
    never = ask(under_way(state), *pods, policy=within({state: 0}), now=NOW + 1e9)
    assert (never.state, never.hold.until, never.plan.wake_at) == (state, None, None)


def test_a_deadline_counts_from_when_people_could_see_the_state() -> None:
    """A node that comes to a state in this very pass has its whole time before it, whatever its memory says."""
    answer = ask(under_way(DELETION), STARTING, policy=within({RESTART: 1}), now=NOW + 1e6)
    assert answer.state is RESTART
    assert answer.plan.wake_at == NOW + 1e6 + 1


@pytest.mark.weakness(33)
@pytest.mark.parametrize(("state", "drain"), [(DELETION, None), (DRAINING, DrainSettings(enable=True, timeout_seconds=0))])
def test_an_eviction_without_a_timeout_of_nvidias_can_have_a_deadline_of_ours(state: State, drain: DrainSettings | None) -> None:
    bounded = within({state: 90}, timeout=0, drain=drain)
    assert ask(under_way(state), OLD, gpu_pod(), policy=bounded).plan.wake_at == ADMITTED + 90
    answer = ask(under_way(state), OLD, gpu_pod(), policy=bounded, now=ADMITTED + 90, refusals=asked(gpu_pod()))
    assert answer.state is State.FAILED


def test_a_timeout_of_nvidias_counts_before_a_deadline_of_ours() -> None:
    assert ask(under_way(DELETION), OLD, gpu_pod(), policy=within({DELETION: 90}, timeout=200)).plan.wake_at == ADMITTED + 200


JOB = gpu_pod(name="job", owner="Job", labels={"app": "job"})


@pytest.mark.weakness(33)
def test_jobs_that_may_take_for_ever_can_have_a_deadline_of_ours() -> None:
    bounded = within({JOBS: 90}, wait_for="app=job")
    begun = ask(node(), OLD, JOB, policy=bounded)
    assert (begun.reason, begun.hold.until) == (Reason.JOBS_RUNNING, NOW + 90)
    assert begun.annotations == {names.WAIT_FOR_JOBS_SINCE: str(int(NOW))}
    over = ask(under_way(JOBS), OLD, JOB, policy=bounded, now=ADMITTED + 90)
    assert over.entered == ["pod-deletion-required"]
    assert over.evicted == ["job"]


def test_time_in_a_pause_does_not_count() -> None:
    paused_at, resumed_at = ADMITTED + 1000, ADMITTED + 1_000_000
    view = under_way(RESTART)
    noted = ask(view, STARTING, policy=PAUSED, now=paused_at).record
    assert noted.paused == paused_at
    asleep = node(state=RESTART, remembers=noted, cordoned=True)
    assert ask(asleep, STARTING, policy=PAUSED, now=resumed_at).plan.actions == ()
    resumed = ask(asleep, STARTING, now=resumed_at)
    assert (resumed.reason, resumed.plan.wake_at) == (Reason.DRIVER_STARTING, resumed_at + 800)
    awake = node(state=RESTART, remembers=resumed.record, cordoned=True)
    assert ask(awake, STARTING, now=resumed_at + 799).state is RESTART
    assert ask(awake, STARTING, now=resumed_at + 800).state is State.FAILED


def test_nothing_fails_in_a_pause_but_a_validation() -> None:
    assert ask(under_way(RESTART), STARTING, policy=PAUSED, now=ADMITTED + 1e6).state is RESTART
    assert ask(under_way(DELETION), OLD, gpu_pod(), policy=PAUSED, now=ADMITTED + 1e6).state is DELETION
    assert ask(under_way(VALIDATION), STARTING, policy=PAUSED, now=ADMITTED + 1e6).state is State.FAILED


def test_a_deadline_that_is_shortened_while_a_node_waits_counts_for_it() -> None:
    waiting = node(state=RESTART, remembers=record(RESTART, ours=True, since=NOW - 500), cordoned=True)
    assert ask(waiting, STARTING).state is RESTART
    assert ask(waiting, STARTING, policy=within({RESTART: 400})).state is State.FAILED
