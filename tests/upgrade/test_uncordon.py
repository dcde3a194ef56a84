"""Back into service: whose cordon is lifted, and what is cleared away."""

from __future__ import annotations

import pytest

from gpuward import names
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from tests.build import ADMITTED, NOW, driver_pod, node, record, under_way, validator
from tests.upgrade.one import ask

UNCORDON = State.UNCORDON_REQUIRED
NEW = driver_pod(driver="560", created=NOW - 30)
FRESH = validator(created=NOW - 20)
INITIALLY = {names.INITIALLY_UNSCHEDULABLE: "true"}


@pytest.mark.parametrize(
    ("view", "lifted"),
    [
        (under_way(UNCORDON), True),
        (under_way(UNCORDON, foreign=True), False),
        (node(state=UNCORDON, cordoned=True), True),
        (node(state=UNCORDON, cordoned=True, annotations=INITIALLY), False),
        (node(state=UNCORDON, remembers=record(UNCORDON), cordoned=True), False),
        (node(state=UNCORDON, remembers=record(UNCORDON, foreign=True), cordoned=True), False),
        (node(state=UNCORDON, remembers=record(UNCORDON, ours=True), cordoned=True, annotations=INITIALLY), False),
        (under_way(UNCORDON, cordoned=False), False),
    ],
    ids=["ours", "foreign", "nvidias", "nvidia found it", "after our upgrade", "foreign by memory", "ours but marked", "lifted"],
)
def test_our_own_cordon_is_lifted_and_no_other(view: NodeView, lifted: bool) -> None:
    answer = ask(view, NEW, FRESH)
    assert answer.state is State.DONE
    assert answer.patch.unschedulable is (False if lifted else None)
    assert answer.record.cordon is None


def test_the_memory_of_a_foreign_cordon_ends_with_the_upgrade() -> None:
    for state in (UNCORDON, State.VALIDATION_REQUIRED):
        answer = ask(under_way(state, foreign=True), NEW, FRESH)
        assert answer.annotations == {names.INITIALLY_UNSCHEDULABLE: None}


def test_a_foreign_cordon_needs_no_step_of_uncordoning() -> None:
    assert ask(under_way(State.VALIDATION_REQUIRED, foreign=True), NEW, FRESH).entered == ["upgrade-done"]


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ([NEW, FRESH], State.VALIDATION_REQUIRED),
        ([driver_pod(), FRESH], State.POD_RESTART_REQUIRED),
    ],
)
def test_a_node_set_to_uncordon_by_hand_is_validated_first(pods: list[PodView], state: State) -> None:
    relabelled = node(state=UNCORDON, remembers=record(State.POD_RESTART_REQUIRED, ours=True), cordoned=True)
    answer = ask(relabelled, *pods)
    assert answer.state is state
    assert answer.entered[0] == "validation-required"
    assert answer.patch.unschedulable is None


@pytest.mark.parametrize("pods", [[driver_pod(driver="560", ready=False), FRESH], [FRESH]], ids=["not ready", "gone"])
def test_a_node_whose_driver_is_not_loaded_is_not_done(pods: list[PodView]) -> None:
    answer = ask(under_way(UNCORDON), *pods)
    assert answer.entered[0] == "validation-required"
    assert answer.state is not State.DONE
    assert answer.patch.unschedulable is None


def test_a_forced_upgrade_that_was_validated_ends() -> None:
    old = driver_pod(driver="560")
    assert ask(under_way(UNCORDON, forced=True), old, validator(created=ADMITTED)).state is State.DONE
    assert ask(under_way(UNCORDON, forced=True), old, validator(created=ADMITTED - 1)).state is State.VALIDATION_REQUIRED


def test_a_request_made_during_the_upgrade_is_met_after_it() -> None:
    view = under_way(UNCORDON, annotations={names.UPGRADE_REQUESTED: "true"})
    answer = ask(view, NEW, FRESH)
    assert answer.entered == ["upgrade-done", "upgrade-required"]
    assert names.UPGRADE_REQUESTED not in answer.annotations


LEFT = {names.INITIALLY_UNSCHEDULABLE: "true", names.VALIDATION_SINCE: "17"}


@pytest.mark.parametrize("state", [State.UNKNOWN, State.DONE, State.UPGRADE_REQUIRED])
def test_what_an_upgrade_that_was_broken_off_left_is_tidied_away(state: State) -> None:
    view = node(state=state, remembers=record(state), annotations=LEFT)
    assert ask(view, NEW, FRESH).annotations == dict.fromkeys(LEFT)


def test_a_cordoned_node_keeps_the_note_that_it_was_cordoned_before() -> None:
    view = node(state=State.DONE, remembers=record(State.DONE), annotations=LEFT, cordoned=True)
    assert ask(view, NEW, FRESH).annotations == {names.VALIDATION_SINCE: None}
