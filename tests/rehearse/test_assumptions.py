"""How long things take in a rehearsal."""

from __future__ import annotations

from random import Random

import pytest

from gpuward.rehearse.assumptions import Assumptions, DrawnDelays


def test_drawn_durations_have_the_median_and_the_slow_tenth_that_are_assumed() -> None:
    random, assumed = Random(1), Assumptions(spread=2.0)
    drawn = sorted(assumed.drawn(100.0, random) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(100.0, rel=0.03)
    assert drawn[18_000] == pytest.approx(200.0, rel=0.03)


def test_without_a_spread_everything_takes_what_is_assumed_each_time() -> None:
    delays = DrawnDelays(Assumptions(driver=90.0, validation=40.0, start=7.0, spread=1.0), 0)
    assert [delays.driver_seconds, delays.driver_seconds] == [90.0, 90.0]
    assert (delays.validator_seconds, delays.pod_start_seconds) == (10.0, 7.0)


def test_each_start_of_a_driver_is_drawn_anew_and_a_seed_draws_the_same() -> None:
    once, again, other = (DrawnDelays(Assumptions(), seed) for seed in (1, 1, 2))
    first = [once.driver_seconds for _ in range(5)]
    assert first == [again.driver_seconds for _ in range(5)]
    assert len({*first, *(other.driver_seconds for _ in range(5))}) == 10
