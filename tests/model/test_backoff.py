"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import pytest

from gpuward.model.backoff import backoff, is_to_come


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 4), (3, 8), (4, 16), (5, 20), (10**6, 20), (0, 2)])
def test_delays_double_with_each_failure_up_to_the_longest(failures: int, seconds: float) -> None:
    assert backoff(failures, 2.0, 20.0) == seconds


def test_the_longest_counts_though_the_first_is_longer() -> None:
    assert backoff(1, 60.0, 5.0) == 5.0


@pytest.mark.parametrize(("at", "to_come"), [(99.0, False), (100.0000003, False), (100.9, False), (160.0, True)])
def test_a_noted_time_is_to_come_only_where_the_clock_was_truly_set_back(at: float, to_come: bool) -> None:
    assert is_to_come(at, 100.0) is to_come
