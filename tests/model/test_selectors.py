"""Label selectors are what apimachinery takes for one, and mean what `kubectl get -l` means by them."""

from __future__ import annotations

import pytest

from gpuward.model.selectors import is_label_key, is_label_value, is_selector, matches

LABELS = {"app": "train", "tier": "low", "empty": "", "example.com/kind": "batch", "gpus": "8", "cold": "-3", "odd": "1_0"}


@pytest.mark.parametrize(
    ("selector", "yes"),
    [
        ("", True),
        (" ", True),
        ("app=train", True),
        ("app==train", True),
        ("app = train", True),
        ("app=serve", False),
        ("app=trainer", False),
        ("app!=serve", True),
        ("app!=train", False),
        ("missing!=anything", True),
        ("missing=anything", False),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("empty", True),
        ("empty=", True),
        ("app=", False),
        ("app in (train, serve)", True),
        ("app in (serve)", False),
        ("missing in (train)", False),
        ("app notin (serve,low)", True),
        ("app notin (train)", False),
        ("missing notin (train)", True),
        ("app=train,tier=low", True),
        ("app=train,tier=high", False),
        ("app=train, tier in (low,high), !missing", True),
        ("example.com/kind=batch", True),
        ("gpus>7", True),
        ("gpus > 8", False),
        ("gpus<9", True),
        ("gpus < 8", False),
        ("cold > -4", True),
        ("cold < -3", False),
        ("odd > 1", False),
        ("app > 1", False),
        ("missing < 1", False),
        ("gpus>1,app=train", True),
    ],
)
def test_a_selector_matches_what_it_says(selector: str, yes: bool) -> None:
    assert matches(selector, LABELS) is yes


@pytest.mark.parametrize("text", [
    "", "  ", "a", "!a", "a=b", "a==b", "a != b", "a=", "a in (b,c)", "a notin ( b )", "a in(b)", "a in ()", "a>1", "a < 3",
    "x.y/z=1,tier in (a,b),!keep",
])
def test_selectors(text: str) -> None:
    assert is_selector(text)


@pytest.mark.parametrize("text", [
    "=b", "a=b,", ",", "a b", "a=b c", "a in b", "a in (b", "a=-b", "A.B/c=1", "a/b/c", "a>x", "a===b", "-a", "!!a", "a=!b",
    "app ! b", "(a)", "gpus > many", "gpus>" + "9" * 5000,
])
def test_not_selectors(text: str) -> None:
    assert not is_selector(text)
    with pytest.raises(ValueError, match="is not a requirement"):
        matches(text, LABELS)


@pytest.mark.parametrize(("text", "key", "value"), [
    ("app", True, True), ("", False, True), ("a.b/c", True, False), ("/c", False, False), ("a_b-c.d", True, True),
    ("-a", False, False), ("a-", False, False), ("x" * 63, True, True), ("x" * 64, False, False),
    (f"{'x' * 253}/y", True, False), (f"{'x' * 254}/y", False, False), ("a b", False, False), ("a\n", False, False),
])
def test_labels(text: str, key: bool, value: bool) -> None:
    assert is_label_key(text) is key
    assert is_label_value(text) is value
