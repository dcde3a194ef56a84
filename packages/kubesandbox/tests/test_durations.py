from __future__ import annotations

import pytest

from kubesandbox import durations


@pytest.mark.parametrize(("seconds", "text"), [
    (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (600, "10m"), (10799, "179m"),
    (10800, "3h"),
    (26400, "7h20m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (183600, "2d3h"), (691200, "8d"), (63072000, "2y"),
    (70000000, "2y80d"),
])
def test_human_durations(seconds: float, text: str) -> None:
    assert durations.human(seconds) == text


def test_since() -> None:
    assert durations.since("2023-11-14T22:13:20Z", 1_700_000_090.0) == "90s"
    assert durations.since(None, 0.0) == "<unknown>"
    assert durations.since("soon", 0.0) == "<invalid>"
