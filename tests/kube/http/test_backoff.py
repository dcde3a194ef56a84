"""Delays between attempts."""

from __future__ import annotations

from random import Random

import pytest

from gpuward import errors
from gpuward.kube.http.backoff import Backoff, asked_wait


def test_delays_double_up_to_the_longest_and_start_again_after_a_reset() -> None:
    backoff = Backoff(Random(1), first=1, longest=8)
    for longest in (1, 2, 4, 8, 8):
        assert longest / 2 <= backoff.next() <= longest
    backoff.reset()
    assert backoff.next() <= 1


def test_many_failures_do_not_overflow() -> None:
    backoff = Backoff(Random(1))
    assert max(backoff.next() for _ in range(5000)) <= 10


@pytest.mark.parametrize(("error", "seconds"), [
    (None, 0),
    (errors.Unreachable("x"), 0),
    (errors.TooManyRequests("x"), 0),
    (errors.TooManyRequests("x", details={"retryAfterSeconds": 30}), 30),
    (errors.ServerError("x", details={"retryAfterSeconds": 3600}), errors.LONGEST_WAIT),
    (errors.ServerError("x", details={"retryAfterSeconds": 10**400}), errors.LONGEST_WAIT),
    (errors.Forbidden("x", details={"retryAfterSeconds": float("inf")}), errors.LONGEST_WAIT),
    (errors.ServerError("x", details={"retryAfterSeconds": float("nan")}), 0),
    (errors.ServerError("x", details={"retryAfterSeconds": True}), 0),
    (errors.ServerError("x", details={"retryAfterSeconds": [1]}), 0),
    (errors.ServerError("x", details={"retryAfterSeconds": "soon"}), 0),
    (errors.ServerError("x", details={"retryAfterSeconds": -1}), 0),
])
def test_the_servers_wish_counts(error: errors.GpuwardError | None, seconds: float) -> None:
    assert asked_wait(error) == seconds
    assert Backoff(Random(1)).next(error) >= seconds
