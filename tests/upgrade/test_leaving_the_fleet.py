"""A node that no driver DaemonSet selects any more: nothing of the upgrade is left behind on it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.history import Ending
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Refusal, Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, PAUSED, device_plugin, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade import world
from tests.upgrade.one import Answer, ask

MAINTENANCE = {State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED}
EVERY = sorted(set(State) - {State.UNKNOWN} - MAINTENANCE)
CLOCKS = {names.WAIT_FOR_JOBS_SINCE: "17", names.VALIDATION_SINCE: "17", names.SAFE_LOAD: "true"}
ELSEWHERE = {"gpu": "elsewhere"}


def left(view: NodeView, *pods: PodView, **rest: Any) -> Answer:
    """Ask about a node that lacks the label by which the DaemonSet selects its nodes."""
    return ask(view, *pods, selects=ELSEWHERE, **rest)


UNVALIDATED = (State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.FAILED)
"""States in which a driver may have been replaced that no validator has seen."""


def kept(answer: Answer) -> dict[str, str | None]:
    """Return what becomes of our memory of a node: nothing is left of it, but that its driver was not validated."""
    text = answer.patch.annotations[names.UPGRADE_RECORD]
    if text is not None:
        assert (answer.record.state, answer.record.forced, answer.record.cordon) == (State.UNKNOWN, True, None)
    return {names.UPGRADE_RECORD: text}


@pytest.mark.weakness(16)
@pytest.mark.parametrize("rules", [policy(), PAUSED], ids=["on", "off"])
@pytest.mark.parametrize("state", EVERY)
def test_it_loses_label_memory_and_our_cordon_in_whatever_state(state: State, rules: UpgradePolicy) -> None:
    answer = left(under_way(state, annotations=CLOCKS), gpu_pod(), policy=rules)
    assert answer.patch.labels == {names.UPGRADE_STATE: None}
    told = {names.UPGRADE_HISTORY: answer.patch.annotations.get(names.UPGRADE_HISTORY)} if state in IN_PROGRESS else {}
    assert answer.patch.annotations == {**told, **kept(answer), **dict.fromkeys(CLOCKS)}
    assert [past.ending for past in answer.history] == [Ending.BACK] * (state in IN_PROGRESS)
    assert (kept(answer)[names.UPGRADE_RECORD] is not None) is (state in UNVALIDATED)
    assert answer.patch.unschedulable is False
    assert (answer.evicted, answer.deleted) == ([], [])


@pytest.mark.parametrize("unvalidated", [True, False])
def test_it_is_remembered_that_its_driver_was_not_validated_when_a_cordon_is_lifted_later(unvalidated: bool) -> None:
    answer = left(node(cordoned=True, remembers=record(State.UNKNOWN, ours=True, forced=unvalidated)))
    assert (answer.patch.unschedulable, kept(answer)[names.UPGRADE_RECORD] is not None) == (False, unvalidated)


@pytest.mark.parametrize("rules", [policy(), PAUSED], ids=["on", "off"])
@pytest.mark.parametrize("state", EVERY)
def test_a_foreign_cordon_stays_and_its_memory_goes(state: State, rules: UpgradePolicy) -> None:
    answer = left(under_way(state, foreign=True), policy=rules)
    assert answer.patch.unschedulable is None
    assert answer.patch.annotations == {**kept(answer), names.INITIALLY_UNSCHEDULABLE: None}


def test_what_others_put_on_it_stays() -> None:
    answer = left(under_way(State.DONE, labels={names.UPGRADE_SKIP: "true"}, annotations={"other": "kept"}))
    assert set(answer.patch.annotations) == {names.UPGRADE_RECORD}
    assert set(answer.patch.labels) == {names.UPGRADE_STATE}


@pytest.mark.parametrize("state", sorted(MAINTENANCE))
def test_a_node_that_a_maintenance_operator_has_is_left_to_it(state: State) -> None:
    answer = left(under_way(state))
    assert (answer.plan.actions, answer.reason) == ((), Reason.MAINTENANCE)


@pytest.mark.parametrize("state", sorted(IN_PROGRESS - MAINTENANCE - {State.UNCORDON_REQUIRED}))
def test_it_is_not_released_while_its_driver_pod_still_terminates(state: State) -> None:
    answer = left(under_way(state), driver_pod(driver="560", deleting=True))
    assert answer.state is not State.UNKNOWN


def test_a_node_with_a_daemonset_that_still_wants_it_is_not_released() -> None:
    assert ask(under_way(State.POD_RESTART_REQUIRED)).state is State.POD_RESTART_REQUIRED


def test_once_released_it_costs_nothing() -> None:
    snapshot = build.cluster([under_way(State.POD_RESTART_REQUIRED)], selects=ELSEWHERE)
    released = world.apply(snapshot, decide(snapshot, policy(), NOW).actions)
    assert (decide(released, policy(), NOW).actions, decide(released, policy(), NOW).nodes) == ((), {})


def test_a_node_of_nvidias_operator_is_released_too() -> None:
    answer = left(node(state=State.DRAIN_REQUIRED, cordoned=True))
    assert (answer.patch.unschedulable, answer.patch.labels) == (False, {names.UPGRADE_STATE: None})


def test_it_takes_no_slot_once_it_is_released_and_counts_for_no_percentage() -> None:
    snapshot = build.cluster(
        [under_way(State.POD_RESTART_REQUIRED), node("n1", State.UPGRADE_REQUIRED, labels=ELSEWHERE)],
        [driver_pod("n1")], selects=ELSEWHERE,
    )
    plan = decide(snapshot, policy(parallel=1, unavailable=1), NOW)
    assert (plan.nodes["n1"].state, plan.counts.total) == (State.UPGRADE_REQUIRED, 1)
    plan = decide(world.apply(snapshot, plan.actions), policy(parallel=1, unavailable=1), NOW)
    assert (plan.nodes["n1"].state, plan.counts.total) == (State.POD_RESTART_REQUIRED, 1)


def returned(state: State) -> Snapshot:
    """Let a node leave the fleet in a state, its validator pod staying, and come back."""
    snapshot = build.cluster([under_way(state)], [validator()], selects=ELSEWHERE)
    gone = world.apply(snapshot, decide(snapshot, policy(), NOW).actions)
    return msgspec.structs.replace(gone, daemonsets=(build.daemonset(),))


def test_a_node_that_comes_back_starts_anew() -> None:
    assert world.rollout(returned(State.POD_DELETION_REQUIRED), policy()).entered("n0") == ["upgrade-done"]


@pytest.mark.parametrize("state", UNVALIDATED)
def test_a_node_that_comes_back_unvalidated_is_done_only_once_a_validator_has_seen_its_driver(state: State) -> None:
    end = world.rollout(returned(state), policy(), now=NOW + 60)
    assert end.entered("n0") == ["upgrade-done"]
    snapshot = next(snapshot for snapshot, plan in end.history if plan.nodes["n0"].state is State.DONE)
    driver, = (pod for pod in snapshot.pods["n0"] if pod.labels["app"] == names.DRIVER_APP)
    confirmed, = (pod for pod in snapshot.pods["n0"] if pod.labels["app"] == names.VALIDATOR_APP)
    assert driver.ready
    assert confirmed.ready
    assert confirmed.created >= driver.created


@pytest.mark.parametrize("state", UNVALIDATED)
def test_a_node_that_comes_back_unvalidated_says_what_it_waits_for(state: State) -> None:
    end = world.rollout(returned(state), policy(), now=NOW + 60, broken=["n0"])
    assert end.plan.nodes["n0"].state is State.UNKNOWN
    assert build.hold_of(end.plan).reason is Reason.DRIVER_FAILING
    assert (end.plan.counts.total, end.plan.counts.up_to_date) == (1, 0)


@pytest.mark.parametrize("state", UNVALIDATED)
def test_a_node_that_comes_back_unvalidated_and_waits_for_another_driver_has_to_be_validated(state: State) -> None:
    """The next upgrade may be taken back before the node is validated."""
    snapshot = world.turn(world.turn(returned(state), NOW + 60), NOW + 61)
    waiting = world.retarget(snapshot, "570")
    plan = decide(waiting, policy(parallel=1, unavailable=0), NOW + 62)
    assert plan.nodes["n0"].state is State.UPGRADE_REQUIRED
    taken_back = world.retarget(world.apply(waiting, plan.actions), "560")
    assert decide(taken_back, policy(unavailable=0), NOW + 63).nodes["n0"].state is State.UPGRADE_REQUIRED


def test_a_node_that_leaves_in_a_pause_and_lost_its_label_before_keeps_no_memory() -> None:
    answer = left(node(remembers=record(State.DONE)), policy=PAUSED)
    assert answer.patch.annotations == {names.UPGRADE_RECORD: None}


def test_a_node_that_nvidias_operator_cordoned_and_that_leaves_in_a_pause_is_uncordoned() -> None:
    answer = left(node(state=State.DRAIN_REQUIRED, cordoned=True), policy=PAUSED)
    assert answer.patch.unschedulable is False


def test_a_label_that_nobody_knows_is_left_alone_also_on_a_node_that_left() -> None:
    assert left(node(state="nonsense", remembers=record(State.DONE)), policy=PAUSED).plan.actions == ()
    assert left(node(state="nonsense", remembers=record(State.DONE))).plan.actions == ()


PLUGIN = msgspec.structs.replace(device_plugin(), labels={"app": names.DEVICE_PLUGIN_APP})
GOING = msgspec.structs.replace(PLUGIN, deleting=True)


@pytest.mark.parametrize("rules", [policy(), PAUSED, msgspec.structs.replace(policy(), absent=True)], ids=["on", "off", "none"])
@pytest.mark.parametrize("state", EVERY)
def test_it_keeps_our_cordon_while_it_offers_gpus_that_no_driver_serves(state: State, rules: UpgradePolicy) -> None:
    answer = left(under_way(state), GOING, policy=rules)
    assert (answer.state, answer.reason) == (state, Reason.DEVICE_PLUGIN_STOPPING)
    assert all(isinstance(action, PatchNode) and action.unschedulable is None for action in answer.plan.actions)


@pytest.mark.parametrize("plugin", [PLUGIN, msgspec.structs.replace(GOING, phase="Failed")], ids=["stays", "ended"])
def test_a_device_plugin_that_stays_or_has_ended_is_not_waited_for(plugin: PodView) -> None:
    daemonset = msgspec.structs.replace(
        build.daemonset(), name=build.PLUGIN.name, uid=build.PLUGIN.uid, labels={}, selector=PLUGIN.labels)
    snapshot = build.cluster([under_way(State.POD_RESTART_REQUIRED)], [plugin], selects=ELSEWHERE)
    snapshot = msgspec.structs.replace(snapshot, daemonsets=(*snapshot.daemonsets, daemonset))
    patch, = decide(snapshot, policy(), NOW).actions
    assert isinstance(patch, PatchNode)
    assert patch.unschedulable is False


def test_a_foreign_cordon_waits_for_no_device_plugin() -> None:
    assert left(under_way(State.POD_RESTART_REQUIRED, foreign=True), GOING).state is State.UNKNOWN


def test_a_node_that_somebody_uncordoned_is_not_cordoned_again_for_it() -> None:
    assert left(msgspec.structs.replace(under_way(State.POD_RESTART_REQUIRED), unschedulable=False), GOING).state is State.UNKNOWN


def test_nothing_is_written_of_a_node_that_left_while_its_writes_are_refused_and_rest() -> None:
    """Its cordon of ours would be lifted, and its memory emptied under a label that stays."""
    view = node("n0", State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED, ours=True), cordoned=True)
    free = left(view)
    assert (free.patch.unschedulable, free.patch.labels) == (False, {names.UPGRADE_STATE: None})
    facts = msgspec.structs.replace(
        build.cluster([view], [], selects=ELSEWHERE), refused_writes={"uid-n0": Refusal(NOW - 1, 3, "denied")})
    resting = Answer(decide(facts, policy(), NOW))
    assert resting.plan.actions == ()
    assert resting.reason is Reason.WRITE_REFUSED
