"""What people said of a rollout, in annotations that anybody may edit."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.errors import PolicyError
from gpuward.model.rollout import RolloutSettings
from gpuward.model.waves import Word
from gpuward.policy.words import encode_word, read_word, with_words

WORD = Word(1_767_312_000.0, "alice", ("6f9c", "7d5b"), ("n1",))


def body(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {f"gpuward.io/{key}": text for key, text in annotations.items()}}}


@pytest.mark.parametrize("word", [WORD, Word(1.0, "", ()), Word(1.5, "system:serviceaccount:ci:deploy", ("none",))])
def test_a_word_is_read_as_it_was_said(word: Word) -> None:
    assert read_word(body(approved=encode_word(word)), names.APPROVED) == word


def test_nothing_is_said_where_there_is_no_annotation() -> None:
    assert read_word({"metadata": {}}, names.APPROVED) is None
    assert with_words(RolloutSettings(), {}) == (RolloutSettings(), None)


@pytest.mark.parametrize("garbage", ["yes", "[]", "{}", '{"at":"soon","by":"a","targets":[]}', "[" * 70_000,
                                     '{"at":"0001-01-01T00:00:00+14:00","by":"a","targets":[]}',
                                     '{"at":"2026-01-01T00:00:00Z","by":"a","targets":"x"}'])
def test_garbage_is_quoted_in_short_with_what_to_do(garbage: str) -> None:
    with pytest.raises(PolicyError, match="remove it, or let `gpuward promote` write it") as caught:
        read_word(body(promoted=garbage), names.PROMOTED)
    assert caught.value.field == "metadata.annotations['gpuward.io/promoted']"
    assert len(str(caught.value.value)) <= 60


def test_one_that_makes_no_sense_takes_nothing_from_the_others() -> None:
    settings, problem = with_words(RolloutSettings(), body(approved="x", aborted=encode_word(WORD)))
    assert settings == RolloutSettings(aborted=WORD)
    assert problem is not None
    assert problem.field == "metadata.annotations['gpuward.io/approved']"
