"""The election's rules as tables."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.errors import InputError
from gpuward.kube.lease.rules import LeaseTiming, Observation, Step, claimed, micro_time, new_lease, next_step, released

WALL = 1_700_000_000.25
NOW = "2023-11-14T22:13:20.250000Z"


def lease(holder: str = "other", renewed: str = "r1", transitions: int = 3, duration: int = 15) -> dict[str, Any]:
    """Return a Lease with an annotation of somebody else's."""
    return {
        "metadata": {"name": "l", "namespace": "n", "resourceVersion": "7", "annotations": {"a": "b"}},
        "spec": {"holderIdentity": holder, "renewTime": renewed, "acquireTime": "a1",
                 "leaseTransitions": transitions, "leaseDurationSeconds": duration, "strategy": "x"},
    }


@pytest.mark.parametrize(("holder", "seen_at", "now", "step"), [
    ("me", 0, 0, Step.RENEW),
    ("me", 0, 100, Step.RENEW),
    ("other", 0, 14.9, Step.WAIT),
    ("other", 0, 15, Step.WAIT),
    ("other", 0, 15.1, Step.TAKE),
    ("", 0, 0, Step.TAKE),
])
def test_the_next_step(holder: str, seen_at: float, now: float, step: Step) -> None:
    assert next_step("me", Observation().next(lease(holder), seen_at), now) is step


def test_without_a_lease_one_is_created() -> None:
    assert next_step("me", None, 0) is Step.CREATE


@pytest.mark.parametrize(("second", "since"), [
    (lease(), 10.0),
    (lease(renewed="r2"), 20.0),
    (lease(holder="third"), 20.0),
    (lease(transitions=4), 20.0),
    ({"metadata": {}, "spec": None}, 20.0),
])
def test_the_wait_counts_from_when_the_present_state_was_first_seen(second: dict[str, Any], since: float) -> None:
    assert Observation().next(lease(), 10).next(second, 20).since == since


def test_the_holders_own_duration_counts() -> None:
    seen = Observation().next(lease(duration=60), 0)
    assert next_step("me", seen, 59) is Step.WAIT
    assert next_step("me", seen, 61) is Step.TAKE


def test_a_lease_that_nobody_renews_is_taken_after_ten_minutes_whatever_it_says() -> None:
    seen = Observation().next(lease(duration=2**31 - 1), 0)
    assert next_step("me", seen, 600) is Step.WAIT
    assert next_step("me", seen, 601) is Step.TAKE


@pytest.mark.parametrize("deadline", [1.0, 596.0, 36_000_000.0])
def test_a_deadline_that_no_lease_can_keep_is_refused(deadline: float) -> None:
    with pytest.raises(InputError, match=r"write (4s or more|595s or less)"):
        LeaseTiming.given("--leader-lease-renew-deadline", deadline)


@pytest.mark.parametrize(("step", "transitions", "acquired"), [
    (Step.TAKE, 4, NOW),
    (Step.RENEW, 3, "a1"),
])
def test_what_a_claim_writes(step: Step, transitions: int, acquired: str) -> None:
    before = lease()
    after = claimed(before, "me", step, WALL, LeaseTiming())
    assert after["metadata"] == before["metadata"]
    assert after["spec"] == {
        "holderIdentity": "me", "renewTime": NOW, "acquireTime": acquired, "leaseTransitions": transitions,
        "leaseDurationSeconds": 11, "strategy": "x",
    }
    assert before == lease()


def test_the_first_claim() -> None:
    after = claimed(new_lease("gpu-operator"), "me", Step.CREATE, WALL, LeaseTiming(duration=30))
    assert after["metadata"] == {"name": "53822513.nvidia.com", "namespace": "gpu-operator"}
    assert after["spec"]["leaseTransitions"] == 0
    assert after["spec"]["leaseDurationSeconds"] == 30


def test_a_release_leaves_no_holder() -> None:
    after = released(lease("me"), WALL)
    assert after["spec"]["holderIdentity"] == ""
    assert after["spec"]["leaseDurationSeconds"] == 1
    assert after["spec"]["leaseTransitions"] == 3
    assert next_step("other", Observation().next(after, 0), 0) is Step.TAKE


def test_a_deadline_that_is_given_means_what_it_does_for_nvidias_operator() -> None:
    assert (LeaseTiming.given("--flag", 10).duration, LeaseTiming.given("--flag", 10).renew_deadline) == (15, 10)
    assert LeaseTiming.given("--flag", 0) == LeaseTiming()


def test_a_deadline_shorter_than_two_renewals_is_refused() -> None:
    with pytest.raises(InputError, match=r"--flag.*2s.*write 4s or more"):
        LeaseTiming.given("--flag", 2)


def test_times_have_six_decimals() -> None:
    assert micro_time(0) == "1970-01-01T00:00:00.000000Z"
