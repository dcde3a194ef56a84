"""Label selectors mean what `kubectl get -l` means by them."""

from __future__ import annotations

import pytest

from gpuward.errors import PolicyError
from gpuward.upgrade.selectors import matches, parse_selector

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


NONSENSE = ["app=a=b", "=x", "app in train", "app in (a", "in (a)", "a b", "app ! b", "(a)", "gpus > many", "gpus>" + "9" * 5000]


@pytest.mark.parametrize("selector", NONSENSE)
def test_nonsense_is_refused_with_the_whole_text_and_an_example(selector: str) -> None:
    with pytest.raises(PolicyError, match="write a label selector such as") as refused:
        parse_selector(selector)
    assert refused.value.value == selector
