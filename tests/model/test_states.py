"""The transition table is whole and consistent with the sets of states beside it."""

from __future__ import annotations

import pytest

from gpuward.errors import IllegalTransition
from gpuward.model.states import IN_PROGRESS, TRANSITIONS, UNDISTURBED, State, check_transition, parse_state

MAINTENANCE = {State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED}
AT_REST = {State.UNKNOWN, State.UPGRADE_REQUIRED, State.DONE, State.FAILED}
NVIDIA_NAMES = {
    "", "upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required", "drain-required",
    "node-maintenance-required", "post-maintenance-required", "pod-restart-required", "validation-required",
    "uncordon-required", "upgrade-done", "upgrade-failed",
}


def reachable(start: State) -> set[State]:
    found, ahead = {start}, [start]
    while ahead:
        for after in TRANSITIONS[ahead.pop()] - found:
            found.add(after)
            ahead.append(after)
    return found


def test_the_states_are_nvidias_and_no_others() -> None:
    assert {str(state) for state in State} == NVIDIA_NAMES


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_state_but_those_of_maintenance_is_reached_from_a_new_node() -> None:
    assert reachable(State.UNKNOWN) == set(State) - MAINTENANCE


@pytest.mark.parametrize("state", sorted(set(State) - MAINTENANCE))
def test_from_every_state_there_is_a_way_to_done(state: State) -> None:
    assert State.DONE in reachable(state)


def test_no_state_leads_to_itself() -> None:
    assert [state for state, after in TRANSITIONS.items() if state in after] == []


def test_states_in_progress_are_those_between_the_queue_and_the_end() -> None:
    assert set(IN_PROGRESS) == set(State) - AT_REST


def test_undisturbed_states_are_in_progress_and_may_go_straight_back_into_service() -> None:
    assert UNDISTURBED < IN_PROGRESS
    assert all({State.UNCORDON_REQUIRED, State.DONE} <= TRANSITIONS[state] for state in UNDISTURBED)


def test_a_driver_that_was_touched_gets_back_into_service_through_validation_only() -> None:
    touched = IN_PROGRESS - UNDISTURBED - MAINTENANCE - {State.VALIDATION_REQUIRED, State.UNCORDON_REQUIRED}
    assert touched == {State.POD_RESTART_REQUIRED}
    assert not {State.UNCORDON_REQUIRED, State.DONE} & TRANSITIONS[State.POD_RESTART_REQUIRED]
    assert not {State.UNCORDON_REQUIRED, State.DONE} & TRANSITIONS[State.FAILED]


def test_a_node_gets_under_way_through_the_queue_only() -> None:
    assert not {state for state in (State.UNKNOWN, State.DONE) if TRANSITIONS[state] & IN_PROGRESS}


@pytest.mark.parametrize("before", State)
def test_the_check_lets_pass_what_the_table_has_and_nothing_else(before: State) -> None:
    for after in State:
        if after in TRANSITIONS[before]:
            check_transition(before, after)
        else:
            with pytest.raises(IllegalTransition, match=f"-> {after or 'unknown'} is not in the transition table"):
                check_transition(before, after)


@pytest.mark.parametrize(
    ("label", "state"),
    [
        (None, State.UNKNOWN),
        ("", State.UNKNOWN),
        ("upgrade-done", State.DONE),
        ("drain-required", State.DRAIN_REQUIRED),
        ("Upgrade-Done", None),
        ("upgrade-done ", None),
        ("upgrade-paused", None),
        ("null", None),
    ],
)
def test_labels_are_read_to_the_letter(label: str | None, state: State | None) -> None:
    assert parse_state(label) is state
