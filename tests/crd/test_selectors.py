from __future__ import annotations

import pytest

from gpuward.crd.selectors import is_label_key, is_label_value, is_selector


@pytest.mark.parametrize("text", [
    "", "  ", "a", "!a", "a=b", "a==b", "a != b", "a=", "a in (b,c)", "a notin ( b )", "a in(b)", "a in ()", "a>1", "a < 3",
    "x.y/z=1,tier in (a,b),!keep",
])
def test_selectors(text: str) -> None:
    assert is_selector(text)


@pytest.mark.parametrize("text", [
    "=b", "a=b,", ",", "a b", "a=b c", "a in b", "a in (b", "a=-b", "A.B/c=1", "a/b/c", "a>x", "a===b", "-a", "!!a", "a=!b",
])
def test_not_selectors(text: str) -> None:
    assert not is_selector(text)


@pytest.mark.parametrize(("text", "key", "value"), [
    ("app", True, True), ("", False, True), ("a.b/c", True, False), ("/c", False, False), ("a_b-c.d", True, True),
    ("-a", False, False), ("a-", False, False), ("x" * 63, True, True), ("x" * 64, False, False),
    (f"{'x' * 253}/y", True, False), (f"{'x' * 254}/y", False, False), ("a b", False, False), ("a\n", False, False),
])
def test_labels(text: str, key: bool, value: bool) -> None:
    assert is_label_key(text) is key
    assert is_label_value(text) is value
