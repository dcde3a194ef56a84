"""Every hold has a sentence, and every hold that is made has what its sentence needs."""

from __future__ import annotations

import string

import pytest

from gpuward.model.plan import Hold, Reason
from gpuward.upgrade.explain import SENTENCES, sentence


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_neither_begins_like_one_nor_ends_like_one(reason: Reason) -> None:
    text = SENTENCES[reason]
    assert not text.endswith((".", " "))
    assert text[0] == text[0].lower()


def fields(reason: Reason) -> list[str]:
    return [field for _, field, _, _ in string.Formatter().parse(SENTENCES[reason]) if field]


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_says_all_its_arguments(reason: Reason) -> None:
    text = sentence(Hold(reason, {field: f"<{field}>" for field in fields(reason)}))
    assert all(f"<{field}>" in text for field in fields(reason))
    assert "{" not in text


def test_braces_in_what_others_wrote_are_left_as_they_are() -> None:
    hold = Hold(Reason.EVICTION_REFUSED, {"pod": "default/a", "attempts": 3, "message": "budget {x} says no {0}"})
    assert sentence(hold) == "pod default/a may not be evicted now (3 attempts): budget {x} says no {0}"
