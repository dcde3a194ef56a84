"""What is remembered of images that were brought onto a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpuward import names
from gpuward.model.containers import PodShape, Pull
from gpuward.model.staging import LONGEST, LONGEST_CAUSE, StagingRecord, encode_staging, staging_record

AT = 1_767_312_000.125


@pytest.mark.parametrize("record", [StagingRecord("5d41402abc4b2a76", AT), StagingRecord("x", AT, "ErrImagePull", 3)])
def test_a_record_comes_back_as_it_was(record: StagingRecord) -> None:
    assert staging_record({names.STAGED: encode_staging(record)}) == record


def test_a_record_stays_small_whatever_the_api_server_says() -> None:
    text = encode_staging(StagingRecord("x" * 16, AT, "\u00e4\"" * 100_000, 1_000_000))
    assert len(text) <= LONGEST
    known = staging_record({names.STAGED: text})
    assert known is not None
    assert len(known.failed) == LONGEST_CAUSE


@given(some.text() | some.sampled_from(['{"images":"x"}', '{"images":1,"at":"2026-01-01T00:00:00Z"}', "[" * 1000, "x" * 5000]))
def test_garbage_is_nothing(text: str) -> None:
    assert staging_record({names.STAGED: text}) is None


def test_without_the_annotation_nothing_is_known() -> None:
    assert staging_record({}) is None


def test_a_digest_is_another_one_for_other_images_and_the_same_in_any_order() -> None:
    one, other = Pull("a", "driver:1"), Pull("b", "manager:1")
    assert PodShape((one, other)).digest == PodShape((other, one)).digest
    assert PodShape((one, other)).digest != PodShape((Pull("a", "driver:2"), other)).digest
    assert PodShape((one,)).digest != PodShape((Pull("a", "driver:1", "Always"),)).digest
