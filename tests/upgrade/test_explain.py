"""Every hold has a sentence, and every hold that is made has what its sentence needs."""

from __future__ import annotations

import string

import pytest

from gpuward.model.explain import SENTENCES, arguments, sentence
from gpuward.model.plan import Hold
from gpuward.model.reasons import Reason
from gpuward.model.views import Ref
from gpuward.model.waits import EvictionRefused
from tests.waits import held_by


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
    told = arguments(held_by(reason).what)
    assert all(told[field] for field in fields(reason))
    assert all(str(told[field]) in sentence(held_by(reason)) for field in fields(reason))
    assert "{" not in sentence(held_by(reason))


def test_braces_in_what_others_wrote_are_left_as_they_are() -> None:
    hold = Hold(EvictionRefused(Ref("default", "a"), "budget {x} says no {0}", 3))
    assert sentence(hold) == "pod default/a may not be evicted now (3 attempts): budget {x} says no {0}"
