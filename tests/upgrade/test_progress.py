"""A walk takes as many steps as the facts allow and writes them as one patch, with its preconditions, events and memory."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.errors import IllegalTransition
from gpuward.model.actions import DeletePod, EvictPod, PatchNode
from gpuward.model.record import CordonOwner, Record, decode_record, encode_record
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import PodView
from gpuward.model.workloads import HOST_DRIVERS
from gpuward.upgrade.decide import decide
from gpuward.upgrade.progress import NodeProgress, apply_move, begin, walk
from gpuward.upgrade.step import STEPS, Move, Rest, step
from gpuward.upgrade.writing import actions_of
from tests import build
from tests.build import ADMITTED, NOW, PAUSED, driver_pod, gpu_pod, node, policy, record, seen, under_way, validator
from tests.upgrade.one import ask, facts

OLD = driver_pod()
NEW = driver_pod(driver="560", created=NOW - 30)
FRESH = validator(created=NOW - 20)


def test_every_state_has_a_step() -> None:
    assert set(STEPS) == set(State)


def test_a_state_has_one_step_only() -> None:
    with pytest.raises(ValueError, match="two step functions for upgrade-done"):
        step(State.DONE)(lambda node, policy, now: Rest())


# The patch.


@pytest.mark.weakness(12, 30, 40)
def test_a_new_node_gets_under_way_in_one_patch_and_then_its_pods_are_evicted() -> None:
    answer = ask(node(annotations={"other": "kept"}), OLD, gpu_pod())
    assert [type(action) for action in answer.plan.actions] == [PatchNode, EvictPod]
    assert {action.lane for action in answer.plan.actions} == {"n0"}
    entered = ["upgrade-required", "cordon-required", "wait-for-jobs-required", "pod-deletion-required"]
    assert answer.entered == entered
    assert answer.patch.labels == {names.UPGRADE_STATE: "pod-deletion-required"}
    messages = [event.message for event in answer.patch.events]
    assert messages == [f"Successfully updated node state label to {state}" for state in entered]
    assert not any(event.warning for event in answer.patch.events)
    assert answer.patch.unschedulable is True
    assert set(answer.patch.annotations) == {names.UPGRADE_RECORD}
    assert answer.record == seen(State.POD_DELETION_REQUIRED, ours=True, since=NOW, started=NOW, pods=(OLD.uid,))
    assert answer.patch.why == "unknown -> pod-deletion-required"


@pytest.mark.weakness(13)
def test_a_patch_is_made_on_what_was_read() -> None:
    view = under_way(State.VALIDATION_REQUIRED)
    patch = ask(view, NEW, FRESH).patch
    assert patch.node == view.ref
    brought = {key: view.labels.get(key) for key in HOST_DRIVERS | names.PLACED_BY}  # else its driver is about to go
    assert patch.expect_labels == {names.UPGRADE_STATE: "validation-required", **brought}
    noted = {names.INITIALLY_UNSCHEDULABLE: None}  # else whoever says by then that the cordon is to stay is not heard
    assert patch.expect_annotations == {names.UPGRADE_RECORD: encode_record(seen(State.VALIDATION_REQUIRED, ours=True)), **noted}
    assert patch.expect_unschedulable is True


def test_a_patch_of_a_node_without_label_and_annotations_expects_none() -> None:
    bare = msgspec.structs.replace(node(), has_annotations=False)
    patch = ask(bare, OLD).patch
    assert patch.expect_labels == {names.UPGRADE_STATE: None}
    assert patch.expect_annotations == {names.UPGRADE_RECORD: None, names.INITIALLY_UNSCHEDULABLE: None}
    assert patch.expect_unschedulable is False
    assert patch.has_annotations is False


def test_warnings_come_before_the_state_they_lead_to() -> None:
    events = ask(under_way(State.POD_DELETION_REQUIRED), OLD, gpu_pod(owner=None)).patch.events
    assert [event.warning for event in events] == [True, False]
    assert events[1].message == "Successfully updated node state label to upgrade-failed"


def test_a_node_that_waits_is_not_written() -> None:
    assert ask(under_way(State.VALIDATION_REQUIRED), NEW, validator(created=NOW, ready=False)).plan.actions == ()


def test_a_driver_pod_is_deleted_after_the_patch_and_in_its_lane() -> None:
    answer = ask(node(), OLD)
    assert [type(action) for action in answer.plan.actions] == [PatchNode, DeletePod]
    assert {action.lane for action in answer.plan.actions} == {"n0"}


@pytest.mark.weakness(44)
def test_driver_pods_of_several_nodes_go_in_one_pass_each_right_after_its_own_patch() -> None:
    actions = decide(build.fleet(3), policy(parallel=0), NOW).actions
    assert [(type(action), action.lane) for action in actions] == [
        (kind, name) for name in ("n0", "n1", "n2") for kind in (PatchNode, DeletePod)
    ]


# Memory.


def test_the_whole_upgrade_is_forgotten_when_it_is_done() -> None:
    view = under_way(State.VALIDATION_REQUIRED, forced=True, failed=State.POD_RESTART_REQUIRED)
    end = ask(view, NEW, FRESH).record
    assert end == seen(State.DONE, since=NOW, pods=tuple(sorted((NEW.uid, FRESH.uid))))


def test_a_request_does_not_outlive_its_upgrade() -> None:
    relabelled = node(state=State.DONE, remembers=record(State.UPGRADE_REQUIRED, forced=True))
    assert not ask(relabelled, OLD, policy=policy(unavailable=0)).record.forced


def test_each_state_is_remembered_with_the_time_it_was_entered() -> None:
    path = apply_move(NodeProgress(facts(node(), OLD)), Move(State.UPGRADE_REQUIRED), NOW + 5)
    assert (path.node.record.state, path.node.record.since) == (State.UPGRADE_REQUIRED, NOW + 5)


def test_a_cordon_that_somebody_lifted_is_not_ours_any_more() -> None:
    lifted = under_way(State.WAIT_FOR_JOBS_REQUIRED, cordoned=False)
    path = apply_move(NodeProgress(facts(lifted, OLD)), Move(State.POD_DELETION_REQUIRED), NOW)
    assert path.node.record.cordon is None


@pytest.mark.parametrize("state", [State.DONE, State.FAILED, State.VALIDATION_REQUIRED])
def test_a_cordon_of_ours_that_was_lifted_is_forgotten_so_that_the_next_one_is_theirs(state: State) -> None:
    lifted = node(state=state, remembers=record(state, ours=True))
    answer = ask(lifted, NEW, validator(created=NOW, ready=False))
    assert answer.record == seen(state)
    assert answer.patch.labels == {}
    assert answer.patch.unschedulable is None


@pytest.mark.parametrize("paused", [0.0, NOW - 5])
@pytest.mark.parametrize("state", [State.FAILED, State.POD_DELETION_REQUIRED, State.POD_RESTART_REQUIRED])
def test_a_cordon_of_ours_that_was_lifted_in_a_pause_is_forgotten_too(state: State, paused: float) -> None:
    lifted = node(state=state, remembers=record(state, ours=True, paused=paused))
    forgotten = [action.annotations[names.UPGRADE_RECORD] for action in ask(lifted, OLD, policy=PAUSED).plan.actions
                 if isinstance(action, PatchNode) and names.UPGRADE_RECORD in action.annotations]
    assert [decode_record(text or "").cordon for text in forgotten] == [None]


def test_a_cordon_made_in_a_pause_after_ours_was_lifted_stays_after_it() -> None:
    theirs = node(state=State.UNCORDON_REQUIRED, remembers=record(State.UNCORDON_REQUIRED, paused=NOW - 5), cordoned=True)
    answer = ask(theirs, NEW, FRESH)
    assert answer.entered == ["upgrade-done"]
    assert answer.patch.unschedulable is None


@pytest.mark.parametrize("remembers", [
    record(State.UPGRADE_REQUIRED, forced=True),
    record(State.FAILED, failed=State.WAIT_FOR_JOBS_REQUIRED, pods=(NEW.uid,)),
])
def test_a_node_that_people_call_done_is_remembered_as_done(remembers: Record) -> None:
    answer = ask(node(state=State.DONE, remembers=remembers), NEW, FRESH)
    assert (answer.state, answer.entered, answer.patch.labels) == (State.DONE, [], {})
    assert answer.record == seen(State.DONE, since=NOW, pods=remembers.pods)
    assert ask(node(state=State.DONE, remembers=answer.record), NEW, FRESH).plan.actions == ()


def test_a_step_sees_the_annotations_that_an_earlier_one_changed() -> None:
    view = under_way(State.VALIDATION_REQUIRED, annotations={names.SAFE_LOAD: "x", names.VALIDATION_SINCE: "17"})
    answer = ask(view, NEW, FRESH)
    assert answer.entered == ["uncordon-required", "upgrade-done"]
    assert answer.annotations == {names.SAFE_LOAD: None, names.VALIDATION_SINCE: None}


@pytest.mark.weakness(45)
def test_annotations_that_come_and_go_within_one_patch_are_not_written() -> None:
    jobs = policy(wait_for="app=job", wait_timeout=100)
    assert ask(node(annotations={}), OLD, policy=jobs).annotations == {}


# The law.


def test_a_step_outside_the_table_is_an_error() -> None:
    with pytest.raises(IllegalTransition, match="upgrade-done -> drain-required"):
        apply_move(NodeProgress(facts(node(state=State.DONE), OLD)), Move(State.DRAIN_REQUIRED), NOW)


def test_a_walk_in_circles_is_an_error_that_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, State.UNKNOWN, lambda node, policy, now: Move(State.DONE))
    monkeypatch.setitem(STEPS, State.DONE, lambda node, policy, now: Move(State.UNKNOWN))
    with pytest.raises(IllegalTransition, match="node n0 goes round in circles: upgrade-done, , upgrade-done"):
        walk(NodeProgress(facts(node(), OLD)), policy(), NOW)


def test_a_walk_stops_before_a_state_that_is_not_allowed_now() -> None:
    path = walk(NodeProgress(facts(node(), OLD)), policy(), NOW, within=frozenset({State.DONE}))
    assert (path.entered, path.hold) == ((), None)


# Taking over.


@pytest.mark.parametrize("state", sorted(
    [*(IN_PROGRESS - {State.VALIDATION_REQUIRED}), State.UPGRADE_REQUIRED, State.FAILED]))
def test_a_node_of_nvidias_operator_is_taken_over_where_it_stands(state: State) -> None:
    path = begin(facts(node(state=state, cordoned=state is not State.UPGRADE_REQUIRED), OLD), NOW)
    ours = state is not State.UPGRADE_REQUIRED
    assert path.node.record == seen(state, ours=ours, since=NOW, started=NOW, pods=(OLD.uid,))
    assert not path.annotations
    (patch,) = actions_of(path, facts(node(state=state), OLD))[:1]
    assert isinstance(patch, PatchNode)
    assert patch.labels == {}


@pytest.mark.parametrize(("state", "driver", "confirmed", "known"), [
    (State.VALIDATION_REQUIRED, NEW, False, False),
    (State.VALIDATION_REQUIRED, OLD, False, False),
    (State.VALIDATION_REQUIRED, NEW, True, True),
    (State.POD_RESTART_REQUIRED, NEW, False, False),
    (State.POD_RESTART_REQUIRED, OLD, False, True),
    (State.POD_DELETION_REQUIRED, NEW, False, True),
])
def test_a_driver_that_the_upgrade_brought_before_it_was_taken_over_is_not_the_one_that_was_there(
    state: State, driver: PodView, confirmed: bool, known: bool
) -> None:
    gathered = facts(node(state=state, cordoned=True), driver, validator(created=NOW - 20, ready=confirmed))
    assert begin(gathered, NOW).node.untouched is known


def test_a_driver_that_was_taken_over_unvalidated_is_validated_though_the_next_one_is_taken_back() -> None:
    """Its label was NVIDIA's `validation-required`; then came another target, and pods that had to be evicted once more."""
    unready = validator(created=NOW - 20, ready=False)
    known = begin(facts(node(state=State.VALIDATION_REQUIRED, cordoned=True), NEW, unready), NOW).node.record
    remembers = msgspec.structs.replace(known, state=State.POD_DELETION_REQUIRED)
    view = node(state=State.POD_DELETION_REQUIRED, remembers=remembers, cordoned=True)
    back = ask(view, NEW, unready, gpu_pod())
    assert (back.state, back.patch.unschedulable, back.evicted) == (State.VALIDATION_REQUIRED, None, [])
    failed = ask(view, NEW, unready, gpu_pod(owner=None), target="550")
    assert (failed.state, failed.patch.unschedulable) == (State.FAILED, None)


@pytest.mark.parametrize("state", [State.UNKNOWN, State.DONE])
def test_a_node_at_rest_is_not_taken_over(state: State) -> None:
    assert begin(facts(node(state=state), OLD), NOW).adopted is False


def test_a_node_that_we_wrote_is_not_taken_over() -> None:
    assert begin(facts(under_way(State.DRAIN_REQUIRED), OLD), NOW).adopted is False


def test_taking_over_keeps_the_memory_of_a_cordon_that_nvidia_found() -> None:
    view = node(state=State.DRAIN_REQUIRED, cordoned=True, annotations={names.INITIALLY_UNSCHEDULABLE: "true"})
    assert begin(facts(view, OLD), NOW).node.record.cordon is CordonOwner.OTHER


def test_a_cordon_on_a_node_that_we_remember_uncordoned_is_somebody_elses() -> None:
    view = node(state=State.VALIDATION_REQUIRED, remembers=record(State.DONE), cordoned=True)
    path = begin(facts(view, OLD), NOW)
    assert path.node.record.cordon is CordonOwner.OTHER
    assert path.annotations == {names.INITIALLY_UNSCHEDULABLE: "true"}


def test_relabelling_by_hand_resets_the_clocks_and_the_failure() -> None:
    view = node(
        state=State.POD_RESTART_REQUIRED, remembers=record(State.FAILED, ours=True, failed=State.VALIDATION_REQUIRED),
        cordoned=True,
    )
    path = begin(facts(view, OLD), NOW)
    assert path.node.record == seen(State.POD_RESTART_REQUIRED, ours=True, forced=True, since=NOW, started=NOW, pods=(OLD.uid,))


def test_garbage_in_our_annotation_is_no_memory_and_is_written_over() -> None:
    view = node(state=State.POD_RESTART_REQUIRED, cordoned=True, annotations={names.UPGRADE_RECORD: "{"})
    answer = ask(view, driver_pod(driver="560", ready=False, created=ADMITTED))
    assert answer.patch.expect_annotations == {names.UPGRADE_RECORD: "{"}
    text = answer.patch.annotations[names.UPGRADE_RECORD]
    assert text is not None
    assert decode_record(text).cordon is CordonOwner.GPUWARD


def test_a_node_under_way_whose_labels_changed_alone_is_taken_over_with_its_clocks() -> None:
    """Others set its state, and gpuward remembered nothing but that its labels changed: it was in its state for decades."""
    only = Record(state=State.WAIT_FOR_JOBS_REQUIRED, cordon=CordonOwner.GPUWARD, changing=NOW - 5)
    for policies in (policy(), PAUSED):
        view = node("n0", State.WAIT_FOR_JOBS_REQUIRED, remembers=only, cordoned=True)
        found = begin(facts(view, OLD, policy=policies), NOW).node.record
        assert (found.since, found.started, found.cordon, found.changing) == (NOW, NOW, CordonOwner.GPUWARD, NOW - 5)
    paused = msgspec.structs.replace(only, paused=NOW - 2)
    again = begin(facts(node("n0", State.WAIT_FOR_JOBS_REQUIRED, remembers=paused, cordoned=True), OLD), NOW).node.record
    assert (again.since, again.started, again.paused) == (NOW, NOW, 0.0)


def test_a_node_that_somebody_uncordoned_waits_for_nothing_that_its_cordon_was_for() -> None:
    """Its time counted from no moment at all: it failed, was found validated, and failed again, for ever."""
    changing = record(State.VALIDATION_REQUIRED, ours=True, changing=NOW - 5)
    view = node("n0", State.VALIDATION_REQUIRED, remembers=changing)
    known = msgspec.structs.replace(facts(view, NEW, FRESH), leaving=NEW)
    path = walk(begin(known, NOW), policy(), NOW)
    assert path.node.state is State.DONE
