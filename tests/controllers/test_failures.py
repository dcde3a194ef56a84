"""When a failed action is tried again, and how often people are told."""

from __future__ import annotations

import pytest

from gpuward.controllers.failures import LAST_RETRY, MOST_WRITES, Failures, retry_after
from gpuward.model.actions import Action, DeletePod, EvictPod
from gpuward.model.passes import Outcome
from gpuward.model.views import Ref

POD = Ref("ns", "pod", "uid")


def action(lane: str) -> DeletePod:
    return DeletePod(POD, lane)


def failed(lane: str, error: str = "no") -> Outcome:
    return Outcome(action(lane), error=error)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (100_000, 30.0)])
def test_the_wait_doubles_up_to_half_a_minute(failures: int, seconds: float) -> None:
    assert retry_after(failures) == seconds


def test_a_failed_lane_rests_and_the_others_go_on() -> None:
    failures = Failures()
    failures.take([failed("a"), Outcome(action("b"))], 100.0)
    both: list[Action] = [action("a"), action("b")]
    assert failures.due(both, 100.4) == [action("b")]
    assert failures.retry_at(100.4) == 100.5
    assert failures.due(both, 100.5) == both


def test_each_failure_in_a_row_lengthens_the_rest_and_a_success_ends_it() -> None:
    failures = Failures()
    failures.take([failed("a")], 100.0)
    failures.take([failed("a")], 101.0)
    assert failures.retry_at(101.0) == 102.0
    failures.take([Outcome(action("a"))], 102.0)
    assert failures.retry_at(102.0) is None
    failures.take([failed("a")], 103.0)
    assert failures.retry_at(103.0) == 103.5


def test_a_server_that_has_too_much_to_do_says_when_to_come_again() -> None:
    failures = Failures()
    busy = Outcome(action("a"), error="busy", wait=1.0)
    for now in (100.0, 101.0, 102.0):
        failures.take([busy], now)
        assert failures.retry_at(now) == now + 1.0
    failures.take([failed("a")], 103.0)
    assert failures.retry_at(103.0) == 103.5
    failures.take([Outcome(action("a"), error="busy", wait=3600.0)], 104.0)
    assert failures.retry_at(104.0) == 104.0 + LAST_RETRY


def test_people_are_told_once_of_each_error_however_many_objects_it_hits() -> None:
    failures = Failures()
    assert failures.take([failed("a"), failed("b"), failed("c", "never")], 1.0) == [failed("a"), failed("c", "never")]
    assert failures.take([failed("a"), failed("b"), failed("c", "never")], 2.0) == []
    assert failures.take([failed("a", "other")], 4.0) == [failed("a", "other")]


def test_a_trouble_outlives_a_pass_without_actions_but_not_for_ever() -> None:
    failures = Failures()
    failures.take([failed("a")], 1.0)
    assert failures.due([], 2.0) == []
    assert failures.take([failed("a")], 3.0) == []
    failures.due([], 4.0 + LAST_RETRY)
    assert failures.take([failed("a")], 40.0) == [failed("a")]


def test_no_rest_is_prolonged_by_a_clock_that_is_set_back() -> None:
    failures = Failures()
    failures.take([failed("a")], 1000.0)
    assert failures.due([action("a")], 700.0) == [action("a")]
    assert failures.retry_at(700.0) is None


def test_a_refused_eviction_lets_nothing_rest() -> None:
    failures = Failures()
    eviction = EvictPod(POD, "a")
    assert failures.take([Outcome(eviction, error="budget")], 1.0) == []
    assert failures.due([eviction], 1.0) == [eviction]


def test_a_time_that_has_passed_wakes_nobody() -> None:
    failures = Failures()
    failures.take([failed("a")], 1.0)
    assert failures.retry_at(1.5) is None


def test_what_is_written_again_and_again_rests_and_that_is_told_once() -> None:
    failures = Failures()
    told = [news for second in range(MOST_WRITES) for news in failures.take([Outcome(action("a"))], 100.0 + second)]
    assert [(one.action.lane, one.error.startswith("it was written 30 times within a minute")) for one in told] == [("a", True)]
    last = 100.0 + MOST_WRITES - 1
    both: list[Action] = [action("a"), action("b")]
    assert failures.due(both, last + LAST_RETRY - 0.1) == [action("b")]
    assert failures.due(both, last + LAST_RETRY) == both


@pytest.mark.parametrize("outcome", [
    Outcome(action("a"), idle=True), Outcome(action("a"), dropped=True), Outcome(EvictPod(POD, "a")),
], ids=["nothing to write", "dropped", "an eviction, which has a back-off of its own"])
def test_what_is_no_write_may_be_looked_at_as_often_as_one_likes(outcome: Outcome) -> None:
    failures = Failures()
    assert not any(failures.take([outcome], 100.0) for _ in range(3 * MOST_WRITES))
    assert failures.due([action("a")], 100.0) == [action("a")]


def test_a_lane_that_is_written_to_now_and_then_never_rests() -> None:
    failures = Failures()
    assert not any(failures.take([Outcome(action("a"))], 100.0 + 2.1 * write) for write in range(10 * MOST_WRITES))
