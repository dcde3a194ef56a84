"""What an answer comes to: a failing sample counts in any case, and what is not known neither passes nor fails."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuward.model.analysis import Analysis, Check, FailWhen, Measured, Measurement, NodeCondition, Promql, Result, Verdict, after
from gpuward.model.analysis_note import encode_analysis, read_analysis
from gpuward.model.measuring import Answer, Sample, of_conditions, of_samples, query_of
from gpuward.model.views import NodeView

ASKED = Promql("http://p:9090", 'x{node=~"{{nodes}}"}', FailWhen(">", 0.5))
RESULTS = st.lists(st.sampled_from(Result), max_size=30)


def measured(*values: float, why: str = "") -> Measurement:
    return of_samples(ASKED, Answer(tuple(Sample({"gpu": str(value)}, value) for value in values), why), 1.0)


@pytest.mark.parametrize(("values", "why", "result", "told"), [
    ((0.5, 0.1), "", Result.PASSED, "gave 0.5 {"),
    ((0.6, 0.1), "", Result.FAILED, "gave 0.6 {"),
    ((0.6, 0.7, math.nan), "partial", Result.FAILED, "gave 0.7 {gpu=\"0.7\"}, and 1 more, and > 0.5 fails"),
    ((0.1, math.nan), "", Result.UNKNOWN, "http://p:9090 answers NaN"),
    ((0.1,), "partial answer", Result.UNKNOWN, "http://p:9090 warns: partial answer"),
    ((), "", Result.UNKNOWN, "http://p:9090 has no data for the query x{"),
    ((math.inf,), "", Result.FAILED, "gave inf "),
])
def test_samples(values: tuple[float, ...], why: str, result: Result, told: str) -> None:
    found = measured(*values, why=why)
    assert found.result is result
    assert told in found.told


def test_no_answer_names_the_server_and_why() -> None:
    found = of_samples(ASKED, Answer(None, "no answer in time"), 1.0)
    assert (found.result, found.told) == (Result.UNKNOWN, "http://p:9090: no answer in time")


def test_a_query_names_nodes_of_which_a_dot_is_nothing_but_a_dot() -> None:
    assert query_of(ASKED, ["n1", "n2.a.b"]) == r'x{node=~"n1|n2\\.a\\.b"}'


def test_conditions() -> None:
    nodes = [NodeView("n1", conditions={"Xid": "False"}), NodeView("n2", conditions={"Xid": "True"}), NodeView("n3")]
    wanted = [NodeCondition("Xid")]
    assert of_conditions(wanted, nodes[:1], 1.0).result is Result.PASSED
    assert of_conditions(wanted, nodes, 1.0).told == "node n2 has Xid=True"
    silent = of_conditions(wanted, [nodes[0], nodes[2]], 1.0)
    assert (silent.result, "by n3" in silent.told) == (Result.UNKNOWN, True)
    assert of_conditions(wanted, [], 1.0).result is Result.UNKNOWN


@settings(derandomize=True, deadline=None)
@given(RESULTS, st.integers(1, 4), st.sampled_from((0.0, 60.0, 180.0)))
def test_a_check_passes_after_its_time_without_a_break_and_fails_after_so_many_failures(
    results: list[Result], failures: int, lasts: float
) -> None:
    check, found = Check("c", lasts=lasts, failures=failures), None
    for place, result in enumerate(results):
        found = after(found, Measurement(60.0 * (place + 1), result, str(place)))
    if found is None:
        return
    run = next((place for place, result in enumerate(reversed(results)) if result is not Result.PASSED), len(results))
    assert found.lasted(check) == (run > 0 and 60.0 * (run - 1) >= lasts)
    assert found.failed(check) == (results.count(Result.FAILED) >= failures)


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=40) | st.sampled_from(['{"targets":[1]}', '{"targets":["a"],"passed":"soon"}', "[" * 9999]))
def test_garbage_in_the_annotation_is_as_good_as_nothing(text: str) -> None:
    assert read_analysis(text) == Analysis()


def test_what_is_remembered_is_read_as_it_was_written() -> None:
    known = Analysis(("a",), 5.0, Verdict("k", 7.0, "3 of query x", 2), {"k": Measured(Result.PASSED, "0", 8.0, 6.0, 1)})
    assert read_analysis(encode_analysis(known)) == known
    assert msgspec.json.decode(encode_analysis(Analysis(("a",)))) == {"targets": ["a"], "last": {}}
