"""Comparing resource versions."""

from __future__ import annotations

import pytest

from gpuward.kube.cache.versions import newer


@pytest.mark.parametrize(("version", "than", "expected"), [
    ("10", "9", True),
    ("9", "10", False),
    ("10", "10", False),
    ("x", "x", False),
    ("x2", "x1", None),
    ("10", "x", None),
    ("1", "", True),
    ("x", "", True),
    ("", "1", False),
    ("", "", False),
    ("123456789012345678901234567890", "123456789012345678901234567889", True),
])
def test_newer(version: str, than: str, expected: bool | None) -> None:
    assert newer(version, than) is expected
