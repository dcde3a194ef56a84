"""What other controllers are told by labels and annotations of theirs, and what of that is ours to take back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.marks import NVSENTINEL_LABELS, REASON, SLURM_REASON, Interop, Marks, marking, ours, removal

BOTH = Interop(nvsentinel=True, slurm=True)
NEW, OLD = NVSENTINEL_LABELS
NOTE = names.NVSENTINEL_OPTED_OUT


def after(before: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    """Apply a change as the API server does."""
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def test_both_are_told_and_each_mark_is_taken_back() -> None:
    marks = marking({}, {}, BOTH, "595")
    assert marks == Marks({NEW: "false", OLD: "false"}, {NOTE: "true", SLURM_REASON: f"{REASON} to 595"})
    labels, annotations = after({}, marks.labels), after({}, marks.annotations)
    assert not marking(labels, annotations, BOTH, "600"), "what is told stays"
    gone = removal(labels, annotations)
    assert (after(labels, gone.labels), after(annotations, gone.annotations)) == ({}, {})


@pytest.mark.parametrize("value", ["true", "false", ""])
@pytest.mark.parametrize("key", NVSENTINEL_LABELS)
def test_what_people_say_to_nvsentinel_stays(key: str, value: str) -> None:
    labels = {key: value}
    assert not marking(labels, {}, Interop(nvsentinel=True), "595")
    assert not removal(labels, {})


def test_a_label_that_somebody_changed_since_is_no_longer_ours() -> None:
    gone = removal({NEW: "true", OLD: "false"}, {NOTE: "true"})
    assert gone == Marks({OLD: None}, {NOTE: None})


def test_a_reason_of_somebody_else_stays() -> None:
    assert not marking({}, {SLURM_REASON: "fans"}, Interop(slurm=True), "595")
    assert not removal({}, {SLURM_REASON: "fans"})


def test_one_that_is_told_no_more_loses_its_marks_alone() -> None:
    labels, annotations = {NEW: "false", OLD: "false"}, {NOTE: "true", SLURM_REASON: REASON}
    assert marking(labels, annotations, Interop(slurm=True), "") == Marks({NEW: None, OLD: None}, {NOTE: None})
    assert marking(labels, annotations, Interop(nvsentinel=True), "") == Marks({}, {SLURM_REASON: None})


VALUES = st.sampled_from(["true", "false", "", "else"])
LABELS = st.dictionaries(st.sampled_from([*NVSENTINEL_LABELS, "other"]), VALUES)
ANNOTATIONS = st.dictionaries(st.sampled_from([NOTE, SLURM_REASON, "other"]), VALUES | st.just(f"{REASON} to 1"))


@given(LABELS, ANNOTATIONS, st.booleans(), st.booleans())
def test_marking_and_removal_come_to_rest_and_leave_what_is_not_ours(
    labels: dict[str, str], annotations: dict[str, str], nvsentinel: bool, slurm: bool
) -> None:
    mine, wanted = ours(labels, annotations), Interop(nvsentinel, slurm)
    put = marking(labels, annotations, wanted, "1")
    marked, noted = after(labels, put.labels), after(annotations, put.annotations)
    assert not marking(marked, noted, wanted, "1")
    gone = removal(marked, noted)
    left, kept = after(marked, gone.labels), after(noted, gone.annotations)
    assert left == {key: value for key, value in labels.items() if key not in mine.labels}
    assert kept == {key: value for key, value in annotations.items() if key not in mine.annotations}
    assert not ours(left, kept)
