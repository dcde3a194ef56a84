"""What a node remembers of its upgrades survives the way through the annotation, within its room, and nothing else gets in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuward.model.course import MOST_TEXT, Course
from gpuward.model.history import (
    ROOM,
    Ending,
    PastUpgrade,
    decode_history,
    encode_history,
    history_of,
    kept_out,
    past_upgrade,
    with_upgrade,
)
from gpuward.model.states import State

WHOLE = st.integers(0, 100_000).map(float)
TIMES = st.integers(1, 4_000_000_000).map(float)
WORDS = st.text(max_size=MOST_TEXT)
PAST = st.builds(
    lambda began, took, **rest: PastUpgrade(began, began + took, **rest),
    TIMES, WHOLE, policy=st.text(max_size=60), before=WORDS, to=WORDS, digest=WORDS, asked=WORDS,
    spent=st.tuples(WHOLE, WHOLE, WHOLE, WHOLE), out=WHOLE, gpus=st.integers(0, 16), evicted=st.integers(0, 500), lost=WHOLE,
    ending=st.sampled_from(Ending), failures=st.integers(0, 9), failed_in=st.sampled_from(["", str(State.DRAIN_REQUIRED)]),
)


def past(began: float = 1000.0, **rest: Any) -> PastUpgrade:
    values: dict[str, Any] = {"to": "580.95.05", "digest": "6f9c7d5b", "spent": (0.0, 12.0, 140.0, 31.0), "out": 312.0, **rest}
    return PastUpgrade(began, began + 312, **values)


@settings(deadline=None, derandomize=True)
@given(st.lists(PAST, max_size=12))
def test_the_newest_are_read_as_they_were_written_and_the_oldest_go_for_want_of_room(history: list[PastUpgrade]) -> None:
    text = encode_history(history)
    if text is None:
        assert not history or len(encode_history([past()]) or "") > 0
        return
    assert len(text.encode()) <= ROOM
    read = decode_history(text)
    assert list(read) == history[: len(read)]
    assert encode_history(read) == text


def test_five_upgrades_have_room() -> None:
    each = [past(1_790_000_000.0 - number, before="580.95.04", asked="argocd-controller", gpus=8, evicted=12, lost=123456.0,
                 policy="pool-a") for number in range(9)]
    assert len(decode_history(encode_history(each) or "")) >= 4


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | (
    st.dictionaries(st.sampled_from(["began", "took", "spent", "out", "ending", "to"]), inner))).map(str))
def test_garbage_is_as_good_as_nothing(text: str) -> None:
    found = history_of(text)
    assert encode_history(found) is None or found


@pytest.mark.parametrize("text", [
    "[" * 3000, "{}", "[{}]", '[{"began":"2026-01-02T03:04:05","took":1}]', '[{"began":"2026-01-02T03:04:05Z","took":-1}]',
    '[{"began":"2026-01-02T03:04:05Z","took":1,"spent":[1]}]', '[{"began":"2026-01-02T03:04:05Z","took":1,"ending":"well"}]',
    "[" + ",".join(['{"began":"2026-01-02T03:04:05Z","took":1}'] * 200) + "]",
])
def test_what_cannot_be_read_is_nothing(text: str) -> None:
    assert history_of(text) == ()


def test_absurd_numbers_are_brought_to_what_can_be_reckoned_with() -> None:
    text = ('[{"began":"0001-01-01T00:00:00Z","took":1e300,"spent":[-1,1e300,0,0],"out":-5,"gpus":-3,"evicted":99999999999,'
            '"failures":-1}]')
    (found,) = history_of(text)
    assert (found.began > 0, found.out, found.gpus, found.failures) == (True, 0.0, 0, 0)
    assert found.seconds == 1e9
    assert encode_history([found]) is not None


def test_an_upgrade_that_is_tried_again_is_one_with_what_failed() -> None:
    failed = past(ending=Ending.FAILED, failures=1, failed_in="drain-required", asked="kubectl", evicted=2, before="580.95.04")
    (both,) = with_upgrade([failed], past(2000.0, evicted=1))
    assert (both.began, both.ended, both.ending) == (1000.0, 2312.0, Ending.DONE)
    assert (both.failures, both.failed_in) == (1, "drain-required")
    assert (both.out, both.evicted, both.asked, both.before) == (624.0, 3, "kubectl", "580.95.04")
    assert both.spent == (0, 24, 280, 62)


@pytest.mark.parametrize("before", [
    past(), past(ending=Ending.FAILED, to="570.1"), past(ending=Ending.FAILED, digest="0"),
    past(ending=Ending.FAILED, policy="a")])
def test_another_upgrade_is_another_entry(before: PastUpgrade) -> None:
    assert with_upgrade([before], past(2000.0)) == (past(2000.0), before)


def test_a_failed_node_may_stay_out_of_service() -> None:
    assert kept_out([past(ending=Ending.FAILED), past(1.0)], 100.0)[0].out == 412.0
    assert kept_out([past()], 100.0) == (past(),)
    assert kept_out([], 100.0) == ()


def test_what_was_noted_on_the_way_is_remembered() -> None:
    course = Course(1000.0, 1010.0, 5.0, "580.95.04", "580.95.05", "6f9c7d5b", "helm", (0.0, 1.0, 2.0, 3.0), 8, 2, 60.0)
    found = past_upgrade(course, "pool-a", 1100.0, Ending.FAILED, "drain-required")
    assert (found.began, found.ended, found.out, found.failures) == (1000.0, 1100.0, 95.0, 1)
    assert (found.policy, found.before, found.to, found.asked, found.gpus) == ("pool-a", "580.95.04", "580.95.05", "helm", 8)
