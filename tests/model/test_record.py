"""What gpuward remembers survives the way through the annotation, and nothing else gets in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuward.model.course import Course
from gpuward.model.record import CordonOwner, Failure, Record, decode_record, encode_record, format_time
from gpuward.model.states import State

TIMES = st.integers(1, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000)
RECORDS = st.builds(
    Record,
    state=st.sampled_from(State),
    since=TIMES,
    started=TIMES | st.just(0.0),
    target=st.text(max_size=10),
    cordon=st.sampled_from([None, *CordonOwner]),
    forced=st.booleans(),
    failure=st.none()
    | st.builds(Failure, st.sampled_from(State), st.text(max_size=20), TIMES, st.integers(1, 9), TIMES | st.just(0.0)),
    paused=TIMES | st.just(0.0),
    restart=st.text(max_size=10),
    course=st.none()
    | st.builds(
        Course, TIMES | st.just(0.0), TIMES | st.just(0.0), st.integers(0, 999).map(float), st.text(max_size=9),
        st.text(max_size=9), st.text(max_size=9), st.text(max_size=9),
        st.tuples(*[st.integers(0, 99).map(float)] * 4), st.integers(0, 16), st.integers(0, 99), st.integers(0, 999).map(float)),
)


@settings(deadline=None, derandomize=True)
@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@settings(deadline=None, derandomize=True)
@given(st.floats(1, 4e9))
def test_a_record_written_again_does_not_change(since: float) -> None:
    once = encode_record(Record(since=since, started=since))
    assert encode_record(decode_record(once)) == once


def test_the_text_has_only_what_is_known() -> None:
    assert json.loads(encode_record(Record(state=State.DONE, since=1_700_000_000.25))) == {
        "state": "upgrade-done",
        "since": "2023-11-14T22:13:20.250Z",
    }


def test_the_text_spells_everything_as_the_docs_do() -> None:
    record = Record(
        state=State.FAILED, since=1_700_000_000.0, started=1_699_999_000.0, target="6f9c7d5b4", cordon=CordonOwner.OTHER,
        forced=True, failure=Failure(State.DRAIN_REQUIRED, "a pod stayed", 1_699_999_999.0, 2, 1_699_999_900.0),
        restart="d1", pods=("a", "b"),
        course=Course(1_699_999_000.0, 1_699_999_001.5, 2.0, "580.95.04", "580.95.05", "6f9c7d5b", "helm",
                      (0.0, 1.5, 0.0, 0.0), 8, 2, 60.0),
    )
    assert json.loads(encode_record(record)) == {
        "state": "upgrade-failed",
        "since": "2023-11-14T22:13:20.000Z",
        "started": "2023-11-14T21:56:40.000Z",
        "pods": ["a", "b"],
        "target": "6f9c7d5b4",
        "cordon": "other",
        "forced": True,
        "failure": {"state": "drain-required", "cause": "a pod stayed", "at": "2023-11-14T22:13:19.000Z", "attempts": 2,
                    "first": "2023-11-14T22:11:40.000Z"},
        "restart": "d1",
        "course": {"began": "2023-11-14T21:56:40.000Z", "out": "2023-11-14T21:56:41.500Z", "wasOut": 2.0, "from": "580.95.04",
                   "to": "580.95.05", "digest": "6f9c7d5b", "asked": "helm", "spent": [0.0, 1.5, 0.0, 0.0], "gpus": 8,
                   "evicted": 2, "lost": 60},
    }


def test_fields_of_a_later_version_are_passed_over() -> None:
    text = '{"state":"upgrade-done","since":"2026-01-02T03:04:05Z","canary":true}'
    assert decode_record(text) == Record(state=State.DONE, since=1_767_323_045.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "truncated"),
        ("null", "object"),
        ("[]", "object"),
        ("{}", "state"),
        ('{"state":"upgrade-dne","since":"2026-01-02T03:04:05Z"}', r"\$\.state"),
        ('{"state":"upgrade-done"}', "since"),
        ('{"state":"upgrade-done","since":17}', r"\$\.since"),
        ('{"state":"upgrade-done","since":"yesterday"}', r"\$\.since"),
        ('{"state":"upgrade-done","since":"2026-01-02T03:04:05"}', "timezone"),
        ('{"state":"upgrade-done","since":"0001-01-01T00:00:00+14:00"}', "years 1 to 9999"),
        ('{"state":"upgrade-done","since":"9999-12-31T23:59:59-14:00"}', "years 1 to 9999"),
        ('{"state":"upgrade-done","since":"9999-12-31T23:59:59.999999Z"}', "years 1 to 9999"),
        ('{"state":"upgrade-done","since":"2026-01-02T03:04:05Z","cordon":"me"}', r"\$\.cordon"),
        ('{"state":"upgrade-done","since":"2026-01-02T03:04:05Z","forced":"yes"}', r"\$\.forced"),
        ('{"state":"upgrade-done","since":"2026-01-02T03:04:05Z","failure":{}}', r"\$\.failure"),
        ('{"x":' + "[" * 100_000, "nested"),
    ],
)
def test_garbage_is_refused_with_the_place_where_it_is(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode_record(text)


@settings(deadline=None, derandomize=True)
@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_no_other_text_does_anything_but_be_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_record(text)


def test_times_are_in_utc_and_cut_to_milliseconds() -> None:
    assert format_time(1_700_000_000.0019) == "2023-11-14T22:13:20.001Z"
