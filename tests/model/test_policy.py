"""The bounds that people write, in nodes."""

from __future__ import annotations

import pytest

from gpuward.model.policy import MaxUnavailable, UpgradePolicy


@pytest.mark.parametrize(
    ("percent", "total", "bound"),
    [
        (25, 4, 1),
        (25, 5, 2),
        (25, 10, 3),
        (1, 3, 1),
        (25, 1, 1),
        (50, 5, 3),
        (100, 7, 7),
        (0, 9, 0),
        (33, 100, 33),
        (7, 100, 7),
        (29, 100, 29),
        (57, 100, 57),
        (25, 0, 0),
        (200, 3, 6),
    ],
)
def test_percentages_are_rounded_up_to_whole_nodes(percent: int, total: int, bound: int) -> None:
    assert MaxUnavailable(percent=percent).of(total) == bound


def test_whole_percentages_of_a_hundred_nodes_are_exact() -> None:
    assert [MaxUnavailable(percent=percent).of(100) for percent in range(101)] == list(range(101))


@pytest.mark.parametrize(("count", "bound"), [(0, 0), (3, 3), (12, 12), (None, 5)])
def test_a_count_is_itself_and_none_is_the_whole_fleet(count: int | None, bound: int) -> None:
    assert MaxUnavailable(count=count).of(5) == bound


@pytest.mark.parametrize(
    ("bound", "text"), [(MaxUnavailable(percent=25), "25%"), (MaxUnavailable(3), "3"), (MaxUnavailable(), "no limit")]
)
def test_bounds_are_written_as_people_write_them(bound: MaxUnavailable, text: str) -> None:
    assert str(bound) == text


def test_the_defaults_are_those_of_the_published_api() -> None:
    policy = UpgradePolicy()
    assert (policy.auto_upgrade, policy.max_parallel_upgrades, str(policy.max_unavailable)) == (False, 1, "25%")
    assert (policy.wait_for_completion.pod_selector, policy.wait_for_completion.timeout_seconds) == ("", 0)
    deletion, drain = policy.pod_deletion, policy.drain
    assert (deletion.force, deletion.timeout_seconds, deletion.delete_empty_dir) == (False, 300, False)
    assert (drain.enable, drain.force, drain.pod_selector, drain.timeout_seconds, drain.delete_empty_dir) == (
        False, False, "", 300, False,
    )
