"""Which of Kubernetes' conditions about drains a node is to have: they are true of it, and others' stay."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.conditions import ConditionChange, change
from gpuward.model.notice import Notice, encode_notice
from gpuward.model.record import CordonOwner, Failure, Record
from gpuward.model.states import IN_PROGRESS, MAINTENANCE, UNDISTURBED, State
from gpuward.model.told import (
    DRAIN_IN_PROGRESS,
    DRAINED,
    MAINTENANCE_IN_PROGRESS,
    MAINTENANCE_PLANNED,
    OURS,
    TYPES,
    ToldCondition,
)
from gpuward.model.views import NodeView

BEGAN = 1000.0
REPLACING = IN_PROGRESS - UNDISTURBED - MAINTENANCE


def node(label: State, *, cordoned: bool = True, **record: object) -> NodeView:
    known = msgspec.structs.replace(Record(label, since=BEGAN + 60, started=BEGAN, cordon=CordonOwner.GPUWARD), **record)
    return NodeView("n", labels={names.UPGRADE_STATE: str(label)} if label else {}, unschedulable=cordoned, record=known)


def after(before: NodeView, found: ConditionChange, now: float = 2000.0) -> NodeView:
    """Apply a change as the API server does."""
    kept = {one.type: one for one in before.told if one.type not in found.gone}
    put = {new.type: ToldCondition(new.type, "True", now, new.message) for new in found.put}
    return msgspec.structs.replace(before, told=tuple(sorted({**kept, **put}.values(), key=lambda one: one.type)))


def true(found: NodeView) -> set[str]:
    return {one.type for one in found.told if one.status == "True"}


def wanted(found: NodeView) -> set[str]:
    return true(after(found, change(found, told=True)))


@pytest.mark.parametrize("state", sorted(UNDISTURBED))
def test_a_node_that_is_emptied_is_being_drained(state: State) -> None:
    assert wanted(node(state)) == {DRAIN_IN_PROGRESS}
    assert wanted(node(state, paused=5.0)) == set(), "a pause disturbs it no further"
    assert wanted(node(state, cordoned=False)) == set(), "somebody lifted its cordon"


@pytest.mark.parametrize("state", sorted(REPLACING))
def test_a_node_whose_driver_is_replaced_is_drained_where_it_had_to_be(state: State) -> None:
    assert wanted(node(state)) == {DRAINED, MAINTENANCE_IN_PROGRESS}
    assert wanted(node(state, restart="digest")) == {MAINTENANCE_IN_PROGRESS}, "its pods run on"


@pytest.mark.parametrize("state", sorted(MAINTENANCE))
def test_a_node_that_another_operator_maintains_is_that_ones_to_tell_of(state: State) -> None:
    assert wanted(node(state)) == set()


@pytest.mark.parametrize(("label", "where", "found"), [
    (State.FAILED, State.POD_RESTART_REQUIRED, {MAINTENANCE_IN_PROGRESS}),
    (State.UNKNOWN, State.VALIDATION_REQUIRED, {MAINTENANCE_IN_PROGRESS}),
    (State.FAILED, State.POD_DELETION_REQUIRED, set()),
    (State.DONE, State.POD_RESTART_REQUIRED, set()),
])
def test_a_failed_node_is_in_maintenance_if_its_driver_was_touched(label: State, where: State, found: set[str]) -> None:
    failed = node(label, state=State.FAILED, failure=Failure(where, "it crashed", BEGAN))
    assert wanted(failed) == found


def test_a_notice_says_from_when_on() -> None:
    notice = {names.NOTICE: encode_notice(Notice("a", "t", BEGAN, BEGAN + 900))}
    waits = msgspec.structs.replace(node(State.UPGRADE_REQUIRED, cordoned=False), annotations=notice)
    (new,) = change(waits, told=True).put
    assert (new.type, new.message) == (MAINTENANCE_PLANNED, f"{OURS}, not before 1970-01-01T00:31:40.000Z")
    later = {names.NOTICE: encode_notice(Notice("b", "t", BEGAN, BEGAN + 1800))}
    again = msgspec.structs.replace(after(waits, change(waits, told=True)), annotations=later)
    assert change(again, told=True).put[0].message.endswith("00:46:40.000Z")
    assert not change(msgspec.structs.replace(waits, annotations={names.NOTICE: "{"}), told=True)


@pytest.mark.parametrize(("there", "put"), [
    (ToldCondition(DRAIN_IN_PROGRESS, "True", 0.0, "fans"), False),
    (ToldCondition(DRAIN_IN_PROGRESS, "False", BEGAN - 1, "fans"), True),
    (ToldCondition(DRAIN_IN_PROGRESS, "Unknown", 0.0, ""), True),
    (ToldCondition(DRAIN_IN_PROGRESS, "False", BEGAN + 1, "fans"), False),
    (ToldCondition(DRAIN_IN_PROGRESS, "False", 0.0, OURS), False),
])
def test_what_somebody_else_says_counts_while_it_is_true_or_new(there: ToldCondition, put: bool) -> None:
    found = msgspec.structs.replace(node(State.DRAIN_REQUIRED), told=(there,))
    assert bool(change(found, told=True).put) is put


CONDITIONS = st.dictionaries(
    st.sampled_from(TYPES), st.tuples(st.sampled_from(["True", "False", "Unknown"]), st.sampled_from([0.0, BEGAN + 5]),
                                      st.sampled_from(["", "fans", OURS, f"{OURS}, not before 2026-01-01"])))


@given(st.sampled_from(State), st.booleans(), CONDITIONS, st.booleans())
def test_it_comes_to_rest_and_what_is_not_ours_stays(
    state: State, cordoned: bool, conditions: dict[str, tuple[str, float, str]], told: bool
) -> None:
    there = tuple(ToldCondition(kind, *said) for kind, said in sorted(conditions.items()))
    before = msgspec.structs.replace(node(state, cordoned=cordoned), told=there)
    done = after(before, change(before, told=told))
    assert not change(done, told=told)
    others = {one for one in there if not one.ours and one.status == "True"}
    assert others <= set(done.told)
    if not told:
        assert {one for one in there if not one.ours} == set(done.told)
