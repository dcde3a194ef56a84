"""The whole decision: admission, pausing, nodes that nobody may touch, and what the counts say."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.explain import arguments, sentence
from gpuward.model.plan import Counts
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Record
from gpuward.model.states import IN_PROGRESS, UNDISTURBED, State
from gpuward.model.views import PodView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, PAUSED, driver_pod, gpu_pod, node, policy, record, under_way, validator
from tests.upgrade import world
from tests.upgrade.one import ask, asked

OLD = driver_pod()
NEW = driver_pod(driver="560", created=NOW - 30)
STARTING = driver_pod(driver="560", created=NOW - 30, ready=False)
FRESH = validator(created=NOW - 20)
SKIP = {names.UPGRADE_SKIP: "true"}


# Nobody touches these.


@pytest.mark.parametrize("rules", [policy(), PAUSED])
@pytest.mark.parametrize("label", ["upgrade-dne", "Upgrade-Done", "null", " "])
def test_an_unknown_label_is_left_alone(label: str, rules: UpgradePolicy) -> None:
    answer = ask(node(state=label), OLD, gpu_pod(), policy=rules)
    assert answer.plan.actions == ()
    assert answer.state is None
    if rules.auto_upgrade:
        assert (answer.reason, arguments(answer.hold.what)) == (Reason.UNKNOWN_STATE, {"label": label})


@pytest.mark.weakness(26)
def test_an_unknown_label_holds_its_node_and_no_other() -> None:
    snapshot = world.relabel(build.fleet(2), "n0", "nonsense")
    plan = decide(snapshot, policy(parallel=0), NOW)
    assert plan.nodes["n1"].state is State.POD_RESTART_REQUIRED


@pytest.mark.parametrize("rules", [policy(parallel=0), PAUSED])
@pytest.mark.parametrize("state", [State.UNKNOWN, State.UPGRADE_REQUIRED, State.VALIDATION_REQUIRED])
def test_nothing_is_decided_about_a_node_whose_last_write_is_in_doubt(state: State, rules: UpgradePolicy) -> None:
    assert ask(node(state=state), OLD, policy=rules, unsettled=["n0"]).plan.actions == ()


@pytest.mark.parametrize(
    ("pods", "rules"),
    [
        ([gpu_pod(name="a"), gpu_pod(name="b")], policy()),
        ([gpu_pod(name="a", owner=None), gpu_pod(name="b", owner=None)], policy()),
        ([build.pod(name="a", labels={"app": "job"}), build.pod(name="b", labels={"app": "job"})], policy(wait_for="app=job")),
    ],
    ids=["evictions", "protected pods", "jobs"],
)
def test_the_order_in_which_pods_are_listed_does_not_matter(pods: list[PodView], rules: UpgradePolicy) -> None:
    assert ask(node(), *pods, OLD, policy=rules) == ask(node(), OLD, *reversed(pods), policy=rules)


def test_a_node_that_is_gone_is_not_mentioned() -> None:
    snapshot = build.fleet(2)
    left = msgspec.structs.replace(snapshot, nodes={"n1": snapshot.nodes["n1"]})
    assert set(decide(left, policy(), NOW).nodes) == {"n1"}


@pytest.mark.weakness(18)
def test_a_skipped_node_is_marked_and_goes_no_further() -> None:
    answer = ask(node(labels=SKIP), OLD)
    assert answer.entered == ["upgrade-required"]
    assert answer.patch.unschedulable is None
    assert answer.reason is Reason.SKIPPED


@pytest.mark.parametrize("state", sorted(IN_PROGRESS - {State.UNCORDON_REQUIRED}))
def test_the_skip_label_comes_too_late_for_a_node_under_way(state: State) -> None:
    assert ask(under_way(state, labels=SKIP), OLD).reason is not Reason.SKIPPED


def test_an_invalid_policy_lets_nodes_under_way_finish() -> None:
    nodes = [node("n0", State.UPGRADE_REQUIRED), under_way(State.VALIDATION_REQUIRED, name="n1")]
    pods = [driver_pod("n0"), driver_pod("n1", "560"), validator("n1")]
    plan = decide(build.cluster(nodes, pods), policy(parallel=0, admit=False), NOW)
    assert build.hold_of(plan, "n0").reason is Reason.INVALID_POLICY
    assert plan.nodes["n1"].state is State.DONE


# Cordons of others.


@pytest.mark.parametrize("remembers", [None, record(State.DONE)])
@pytest.mark.parametrize("pods", [[OLD], [OLD, gpu_pod()], [driver_pod(config_digest="d"), gpu_pod()]])
def test_a_cordon_before_the_upgrade_is_noted_as_foreign_at_once(pods: list[PodView], remembers: Record | None) -> None:
    answer = ask(node(state=State.DONE if remembers else "", remembers=remembers, cordoned=True), *pods, digest="d")
    assert answer.state in IN_PROGRESS
    assert answer.annotations == {names.INITIALLY_UNSCHEDULABLE: "true"}
    assert answer.record.cordon == "other"


@pytest.mark.weakness(10)
def test_a_cordon_put_on_a_waiting_node_is_foreign() -> None:
    waiting = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED), cordoned=True)
    assert ask(waiting, OLD, gpu_pod()).record.cordon == "other"


@pytest.mark.weakness(10)
def test_a_cordon_taken_off_a_waiting_node_is_ours_when_it_comes_back() -> None:
    """NVIDIA's operator notes a cordon when it queues the node; what counts is the moment of ours."""
    found = {names.INITIALLY_UNSCHEDULABLE: "true"}
    waiting = node(state=State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED), annotations=found)
    answer = ask(waiting, OLD, gpu_pod())
    assert answer.record.cordon == "gpuward"
    assert answer.annotations == {names.INITIALLY_UNSCHEDULABLE: None}


def test_a_cordon_that_nvidias_operator_found_is_foreign_whatever_we_remember() -> None:
    found = {names.INITIALLY_UNSCHEDULABLE: "true"}
    remembers = record(State.UPGRADE_REQUIRED, ours=True)
    answer = ask(node(state=State.UPGRADE_REQUIRED, remembers=remembers, annotations=found, cordoned=True), OLD, gpu_pod())
    assert answer.record.cordon == "other"
    assert answer.annotations == {}


# A label set by hand.

TOUCHED = (State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED, State.FAILED)
BY_HAND = sorted(set(State) - {State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED, State.FAILED})


@pytest.mark.parametrize(
    ("label", "remembered"), [(label, remembered) for label in BY_HAND for remembered in TOUCHED if label is not remembered]
)
def test_a_label_set_by_hand_leads_to_a_restart_or_a_fresh_validation(label: State, remembered: State) -> None:
    """Whatever the label says, no driver is trusted that was touched and not validated since."""
    view = node(state=label, remembers=record(remembered, ours=True), cordoned=True)
    end = world.rollout(build.cluster([view], [NEW, validator(created=NOW - 40)]), policy())
    assert end.entered("n0")[-1] == "upgrade-done"
    assert "validation-required" in [str(label), *end.entered("n0")]
    (vouching,) = [pod for pod in end.end.pods["n0"] if pod.labels["app"] == names.VALIDATOR_APP]
    assert vouching.created >= NOW
    assert not end.end.nodes["n0"].unschedulable


@pytest.mark.weakness(11)
@pytest.mark.parametrize("label", BY_HAND)
def test_a_label_set_by_hand_never_takes_an_administrators_cordon(label: State) -> None:
    view = node(state=label, remembers=record(State.DONE), cordoned=True)
    end = world.rollout(build.cluster([view], [OLD, validator(), gpu_pod()]), policy())
    assert end.plan.nodes["n0"].state is State.DONE
    assert end.end.nodes["n0"].unschedulable
    assert not [a for _, plan in end.history for a in plan.actions if isinstance(a, PatchNode) and a.unschedulable is False]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("label", sorted(UNDISTURBED))
def test_a_label_set_by_hand_evicts_nobody_while_upgrades_are_off(label: State, known: bool) -> None:
    """Nor where another driver pod serves the node than the one that is remembered, as after it was deleted by hand."""
    view = node(state=label, remembers=record(State.DONE, pods=("uid-earlier",)) if known else None)
    answer = ask(view, NEW, FRESH, gpu_pod(), policy=policy(auto_upgrade=False, drain=DrainSettings(enable=True)))
    assert (answer.plan.actions, answer.state, answer.reason) == ((), label, Reason.PAUSED)


def test_a_node_set_to_failed_by_hand_stays_so() -> None:
    view = node(state=State.FAILED, remembers=record(State.DONE, target="540"))
    end = world.rollout(build.cluster([view], [OLD, validator()]), policy())
    assert end.plan.nodes["n0"].state is State.FAILED
    assert sentence(build.hold_of(end.plan)) == "failed: somebody set the state label to upgrade-failed, and did not say why"


@pytest.mark.parametrize("remembered", sorted(IN_PROGRESS))
def test_a_cordon_of_ours_is_not_left_behind_when_the_label_is_taken_away(remembered: State) -> None:
    view = node(remembers=record(remembered, ours=True), cordoned=True)
    end = world.rollout(build.cluster([view], [NEW, FRESH]), policy())
    assert end.plan.nodes["n0"].state is State.DONE
    assert not end.end.nodes["n0"].unschedulable


def test_a_node_between_two_driver_pods_is_not_forgotten_when_its_label_is_taken_away() -> None:
    view = node(remembers=record(State.POD_RESTART_REQUIRED, ours=True), cordoned=True)
    answer = ask(view)
    assert answer.entered == ["upgrade-required"]
    assert answer.reason is Reason.DRIVER_POD_MISSING


# Taking over from NVIDIA's operator.


@pytest.mark.parametrize("state", BY_HAND)
@pytest.mark.parametrize("foreign", [False, True])
def test_an_upgrade_that_nvidias_operator_began_is_finished(state: State, foreign: bool) -> None:
    found = {names.INITIALLY_UNSCHEDULABLE: "true"} if foreign else {}
    cordoned = foreign or state in IN_PROGRESS - {State.CORDON_REQUIRED}
    view = node(state=state, annotations=found, cordoned=cordoned)
    end = world.rollout(build.cluster([view], [OLD, validator(), gpu_pod()]), policy())
    assert end.plan.nodes["n0"].state is State.DONE
    assert end.plan.actions == ()
    assert end.end.nodes["n0"].unschedulable is foreign
    assert names.INITIALLY_UNSCHEDULABLE not in end.end.nodes["n0"].annotations


def test_a_failure_of_nvidias_operator_stays_until_the_driver_is_validated() -> None:
    view = node(state=State.FAILED, cordoned=True)
    failed = world.rollout(build.cluster([view], [OLD, validator()]), policy())
    assert failed.plan.nodes["n0"].state is State.FAILED
    repaired = world.with_pods(failed.end, "n0", [driver_pod(driver="560", created=NOW + 50), validator(created=NOW + 60)])
    end = world.rollout(repaired, policy(), now=NOW + 99)
    assert end.plan.nodes["n0"].state is State.DONE
    assert not end.end.nodes["n0"].unschedulable


# Pausing.


@pytest.mark.weakness(2, 3)
@pytest.mark.parametrize("state", sorted(UNDISTURBED | {State.POD_RESTART_REQUIRED}))
def test_a_paused_node_under_way_keeps_everything(state: State) -> None:
    answer = ask(under_way(state), OLD, gpu_pod(), validator(), policy=PAUSED)
    assert answer.reason is Reason.PAUSED
    assert answer.plan.actions == (answer.patch,), "it notes when its clock stopped"
    assert (answer.patch.labels, answer.patch.unschedulable, list(answer.annotations)) == ({}, None, [])
    noted = msgspec.structs.replace(under_way(state), record=answer.record)
    assert ask(noted, OLD, gpu_pod(), validator(), policy=PAUSED, now=NOW + 99).plan.actions == ()


def test_the_clock_of_a_state_stands_still_in_a_pause() -> None:
    view = under_way(State.POD_DELETION_REQUIRED)
    assert view.record is not None
    limit = view.record.since + 300
    paused = msgspec.structs.replace(view, record=msgspec.structs.replace(view.record, paused=limit - 10))
    resumed = ask(paused, OLD, gpu_pod(), now=limit + 5000)
    assert resumed.reason is Reason.EVICTING
    assert (resumed.record.since, resumed.record.paused) == (limit + 5000 - 290, 0.0)
    later = msgspec.structs.replace(view, record=resumed.record)
    told = asked(gpu_pod())
    assert ask(later, OLD, gpu_pod(), now=limit + 5009, refusals=told).state is not State.FAILED
    assert ask(later, OLD, gpu_pod(), now=limit + 5011, refusals=told).state is State.FAILED


def test_the_clock_of_the_jobs_stands_still_in_a_pause() -> None:
    begun, waiting = int(NOW) - 50, policy(wait_for="app=job", wait_timeout=100)
    remembers = record(State.WAIT_FOR_JOBS_REQUIRED, ours=True, since=NOW - 50, paused=NOW)
    view = node(
        state=State.WAIT_FOR_JOBS_REQUIRED, remembers=remembers, cordoned=True,
        annotations={names.WAIT_FOR_JOBS_SINCE: str(begun)},
    )
    answer = ask(view, OLD, gpu_pod(labels={"app": "job"}), policy=waiting, now=NOW + 5000)
    assert answer.reason is Reason.JOBS_RUNNING
    assert answer.annotations == {names.WAIT_FOR_JOBS_SINCE: str(begun + 5000)}
    assert answer.plan.wake_at == NOW + 5050


def test_a_node_that_is_not_remembered_has_no_clock_to_stop() -> None:
    view = node(state=State.POD_DELETION_REQUIRED, cordoned=True)
    assert ask(view, OLD, gpu_pod(), policy=PAUSED).plan.actions == ()


@pytest.mark.parametrize("state", sorted({State.UPGRADE_REQUIRED, State.DONE, State.FAILED}))
def test_a_paused_node_not_under_way_loses_its_label_and_nothing_else(state: State) -> None:
    answer = ask(node(state=state, remembers=record(state), annotations={names.UPGRADE_REQUESTED: "true"}), OLD, policy=PAUSED)
    assert answer.plan.actions == (answer.patch,)
    assert answer.patch.labels == {names.UPGRADE_STATE: None}
    assert answer.patch.expect_labels == {names.UPGRADE_STATE: str(state)}
    assert (answer.patch.annotations, answer.patch.unschedulable) == ({}, None)


def test_a_node_that_is_not_managed_loses_its_label_too() -> None:
    plan = decide(build.cluster([node(state=State.DONE)]), PAUSED, NOW)
    assert [action.lane for action in plan.actions] == ["n0"]
    assert decide(build.cluster([node(state=State.DONE)]), policy(), NOW).actions == ()


@pytest.mark.parametrize(
    ("state", "pods", "entered"),
    [
        (State.POD_RESTART_REQUIRED, [NEW, FRESH], ["validation-required", "uncordon-required", "upgrade-done"]),
        (State.POD_RESTART_REQUIRED, [NEW], ["validation-required"]),
        (State.POD_RESTART_REQUIRED, [STARTING], []),
        (State.VALIDATION_REQUIRED, [NEW, FRESH], ["uncordon-required", "upgrade-done"]),
        (State.VALIDATION_REQUIRED, [driver_pod(driver="555"), FRESH], []),
        (State.UNCORDON_REQUIRED, [NEW, FRESH], ["upgrade-done"]),
        (State.UNCORDON_REQUIRED, [OLD, FRESH], ["upgrade-done"]),
        (State.UNCORDON_REQUIRED, [], ["validation-required"]),
    ],
)
def test_a_paused_node_may_be_validated_and_uncordoned(state: State, pods: list[PodView], entered: list[str]) -> None:
    answer = ask(under_way(state), *pods, policy=PAUSED)
    assert answer.entered == entered
    assert answer.deleted == []
    if not entered:
        assert answer.reason is Reason.PAUSED
    elif entered[-1] == "upgrade-done":
        assert answer.patch.unschedulable is False


def test_a_paused_validation_may_fail() -> None:
    answer = ask(under_way(State.VALIDATION_REQUIRED), NEW, validator(created=NOW, ready=False), policy=PAUSED, now=NOW + 600)
    assert (answer.entered, answer.reason) == (["upgrade-failed"], Reason.RETRY_LATER)


@pytest.mark.weakness(2)
def test_pausing_and_resuming_goes_on_from_where_it_was() -> None:
    under = world.apply(
        build.fleet(3, gpu_pods={0: 1, 1: 1, 2: 1}), decide(build.fleet(3, gpu_pods={0: 1, 1: 1, 2: 1}), policy(), NOW).actions
    )
    paused = world.rollout(under, PAUSED)
    assert [paused.end.nodes[name].upgrade_label for name in ("n0", "n1", "n2")] == ["pod-deletion-required", "", ""]
    assert [paused.end.nodes[name].unschedulable for name in ("n0", "n1", "n2")] == [True, False, False]
    resumed = world.rollout(paused.end, policy(), now=NOW + 9)
    assert all(status.state is State.DONE for status in resumed.plan.nodes.values())
    assert not any(view.unschedulable for view in resumed.end.nodes.values())
    assert resumed.entered("n0")[0] == "pod-restart-required"


def test_a_failure_is_not_laundered_by_a_pause() -> None:
    view = under_way(State.FAILED, failed=State.VALIDATION_REQUIRED, foreign=True)
    paused = world.rollout(build.cluster([view], [NEW, validator(created=NOW - 20, ready=False)]), PAUSED)
    assert paused.end.nodes["n0"].upgrade_label == ""
    resumed = decide(paused.end, policy(), NOW)
    (patch,) = [action for action in resumed.actions if isinstance(action, PatchNode)]
    assert patch.entered[0] is State.FAILED
    assert patch.expect_labels[names.UPGRADE_STATE] is None


# The summary.


def test_the_counts_are_those_of_the_metrics() -> None:
    states = {0: State.DONE, 1: State.FAILED, 2: State.CORDON_REQUIRED, 3: State.UPGRADE_REQUIRED, 4: State.UPGRADE_REQUIRED}
    snapshot = build.fleet(6, states=states, cordoned=[1, 2], gpu_pods={2: 1}, not_ready=[5])
    plan = decide(snapshot, policy(parallel=1, unavailable=4), NOW)
    assert plan.counts == Counts(total=6, in_progress=1, done=1, failed=1, available=0, pending=3, unavailable=3, up_to_date=1)


@pytest.mark.parametrize(
    ("parallel", "unavailable", "available"), [(3, None, 2), (0, None, 3), (0, 2, 1), (3, "50%", 1), (1, 1, 0)]
)
def test_available_is_what_could_start_now(parallel: int, unavailable: str | int | None, available: int) -> None:
    snapshot = build.fleet(4, driver="560", states={0: State.CORDON_REQUIRED}, gpu_pods={0: 1})
    snapshot = world.with_pods(snapshot, "n0", [driver_pod("n0"), gpu_pod("n0")])
    assert decide(snapshot, policy(parallel=parallel, unavailable=unavailable), NOW).counts.available == available


def test_the_plan_wakes_at_the_first_of_all_deadlines() -> None:
    nodes = [under_way(State.VALIDATION_REQUIRED, name="n0", since=NOW - 100), under_way(State.POD_DELETION_REQUIRED, name="n1")]
    pods = [driver_pod("n0", "560", created=NOW - 200), validator("n0", ready=False, created=NOW - 90)]
    pods += [driver_pod("n1"), gpu_pod("n1")]
    assert decide(build.cluster(nodes, pods), policy(), NOW).wake_at == NOW - 60 + 300
    assert decide(build.fleet(2, driver="560"), policy(), NOW).wake_at is None


def test_a_fleet_that_is_done_costs_nothing() -> None:
    done = world.rollout(build.fleet(5), policy(parallel=0)).end
    plan = decide(done, policy(parallel=0), NOW + 1e6)
    assert (plan.actions, plan.wake_at, plan.holds) == ((), None, {})
