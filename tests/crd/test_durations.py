from __future__ import annotations

import pytest

from gpuward.crd.durations import parse_duration
from gpuward.errors import InputError


@pytest.mark.parametrize(("text", "seconds"), [
    ("0s", 0), ("10s", 10), ("1m30s", 90), ("2h", 7200), ("1h0m1s", 3601), ("1.5s", 1.5), ("0", 0),
])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration("--x", text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "ten", "5d", "-3s", "1.s", ".", "30s1m", "10m\n", "1m 30s", "9999999h", "²s"])
def test_what_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"--x: .* write a duration such as"):
        parse_duration("--x", text)
