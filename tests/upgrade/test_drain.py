"""Taking a node out of service: each way out of each of the four steps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import EvictPod
from gpuward.model.explain import arguments
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner, Failure
from gpuward.model.snapshot import Evicted, Refusal
from gpuward.model.states import UNDISTURBED, State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.at_its_time import at_its_time
from gpuward.upgrade.decide import decide
from gpuward.upgrade.node_decision import DecisionCache
from tests.build import ADMITTED, LONG_AGO, NOW, cluster, driver_pod, gpu_pod, node, pod, policy, record, under_way, validator
from tests.upgrade.one import Answer, ask, asked

CORDON, JOBS, DELETION, DRAINING = (
    State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED, State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED,
)
OLD = driver_pod()
DRAIN = policy(drain=DrainSettings(enable=True))


# Cordon.

NOT_CORDONED = under_way(CORDON, cordoned=False)


@pytest.mark.parametrize(
    ("view", "owner", "memory"),
    [
        (node(state=CORDON, remembers=record(CORDON)), CordonOwner.GPUWARD, {}),
        (node(state=CORDON, remembers=record(CORDON), cordoned=True), CordonOwner.OTHER, {names.INITIALLY_UNSCHEDULABLE: "true"}),
        (node(state=CORDON, remembers=record(CORDON, ours=True), cordoned=True), CordonOwner.GPUWARD, {}),
        (node(state=CORDON, cordoned=True), CordonOwner.GPUWARD, {}),
        (node(state=CORDON, cordoned=True, annotations={names.INITIALLY_UNSCHEDULABLE: "true"}), CordonOwner.OTHER, {}),
        (
            node(state=CORDON, remembers=record(CORDON), annotations={names.INITIALLY_UNSCHEDULABLE: "true"}),
            CordonOwner.GPUWARD, {names.INITIALLY_UNSCHEDULABLE: None},
        ),
    ],
    ids=["not cordoned", "others did", "we did", "nvidia did", "nvidia found it cordoned", "stale memory"],
)
def test_the_owner_of_the_cordon_is_noted_when_the_node_is_cordoned(
    view: NodeView, owner: CordonOwner, memory: dict[str, str | None]
) -> None:
    answer = ask(view, OLD, gpu_pod())
    assert answer.state is DELETION
    assert answer.record.cordon is owner
    assert answer.annotations == memory
    assert answer.patch.unschedulable is (None if view.unschedulable else True)


JOB = gpu_pod(name="job", owner="Job", labels={"app": "job"})
WAITING = policy(wait_for="app=job", wait_timeout=100)


def test_the_clock_of_the_jobs_starts_with_the_cordon() -> None:
    answer = ask(NOT_CORDONED, OLD, JOB, policy=WAITING)
    assert answer.annotations == {names.WAIT_FOR_JOBS_SINCE: str(int(NOW))}
    assert answer.reason is Reason.JOBS_RUNNING
    assert answer.plan.wake_at == NOW + 100


@pytest.mark.parametrize("rules", [policy(wait_for="app=job"), policy(wait_for="app=other", wait_timeout=100), policy()])
def test_no_clock_starts_without_jobs_or_without_a_timeout(rules: UpgradePolicy) -> None:
    assert ask(NOT_CORDONED, OLD, JOB, policy=rules).annotations == {}


def test_a_clock_left_from_an_earlier_upgrade_is_wound_up_again() -> None:
    view = under_way(CORDON, cordoned=False, annotations={names.WAIT_FOR_JOBS_SINCE: str(int(LONG_AGO))})
    answer = ask(view, OLD, JOB, policy=WAITING)
    assert answer.state is JOBS
    assert answer.annotations == {names.WAIT_FOR_JOBS_SINCE: str(int(NOW))}


# Wait for jobs.


def waiting(since: str | None) -> NodeView:
    return under_way(JOBS, annotations={names.WAIT_FOR_JOBS_SINCE: since} if since is not None else {})


@pytest.mark.parametrize(
    ("since", "now", "waits_until"),
    [
        (str(int(NOW)), NOW + 99.9, NOW + 100),
        (str(int(NOW)), NOW + 100, None),
        (None, ADMITTED + 99, ADMITTED + 100),
        (None, ADMITTED + 100, None),
        ("soon", ADMITTED + 99, ADMITTED + 100),
        ("\u00b2", ADMITTED + 99, ADMITTED + 100),
        ("-5", ADMITTED + 99, ADMITTED + 100),
        ("0", ADMITTED + 99, ADMITTED + 100),
        (str(int(NOW) * 2), ADMITTED + 99, ADMITTED + 100),
        (str(int(NOW) * 2), ADMITTED + 100, None),
        ("9" * 400, ADMITTED + 99, ADMITTED + 100),
    ],
)
def test_jobs_get_their_time_whatever_the_annotation_says(since: str | None, now: float, waits_until: float | None) -> None:
    answer = ask(waiting(since), OLD, JOB, policy=WAITING, now=now)
    if waits_until is None:
        assert answer.entered == [DELETION]
        assert answer.annotations == ({names.WAIT_FOR_JOBS_SINCE: None} if since else {})
    else:
        assert (answer.state, answer.plan.wake_at, answer.hold.until) == (JOBS, waits_until, waits_until)


def test_jobs_without_a_timeout_are_waited_for_without_end() -> None:
    answer = ask(waiting(None), OLD, JOB, pod(name="z", labels={"app": "job"}), policy=policy(wait_for="app=job"), now=NOW + 1e9)
    assert answer.plan.actions == ()
    assert answer.plan.wake_at is None
    assert arguments(answer.hold.what) == {"pod": "default/job", "pods": 2}


# Pod deletion.

DELETING = under_way(DELETION)


def test_gpu_pods_are_evicted_and_named() -> None:
    answer = ask(DELETING, OLD, gpu_pod(name="a"), gpu_pod(name="b"), pod(name="c"))
    assert answer.evicted == ["a", "b"]
    assert answer.plan.wake_at == ADMITTED + 300
    assert (answer.reason, arguments(answer.hold.what)) == (Reason.EVICTING, {"pods": 2, "pod": "default/a"})


def test_a_pod_on_its_way_is_waited_for_and_not_asked_again() -> None:
    answer = ask(DELETING, OLD, gpu_pod(deleting=True))
    assert answer.plan.actions == ()
    assert answer.reason is Reason.EVICTING


def test_an_empty_node_goes_on_and_says_so_if_it_had_to_wait() -> None:
    answer = ask(DELETING, OLD)
    assert answer.entered == ["pod-restart-required"]
    assert answer.messages == ["Deleted workload pods on the node for the driver upgrade"]
    assert ask(NOT_CORDONED, OLD).messages == []


@pytest.mark.weakness(42)
@pytest.mark.parametrize(
    ("count", "retry_after"), [(1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 30.0), (9, 30.0), (1_000, 30.0), (10**6, 30.0)]
)
def test_a_refused_eviction_is_tried_again_ever_more_rarely(count: int, retry_after: float) -> None:
    protected = gpu_pod()
    refusals = {protected.uid: Refusal(NOW, count, "the budget says no")}
    before = ask(DELETING, OLD, protected, refusals=refusals, now=NOW + retry_after - 0.1)
    assert (before.evicted, before.plan.wake_at) == ([], NOW + retry_after)
    assert before.reason is Reason.EVICTION_REFUSED
    assert arguments(before.hold.what) == {"pod": "default/train", "message": "the budget says no", "attempts": count}
    assert ask(DELETING, OLD, protected, refusals=refusals, now=NOW + retry_after).evicted == ["train"]


def test_the_rest_of_a_refused_pod_is_not_prolonged_by_a_clock_that_is_set_back() -> None:
    protected, memory = gpu_pod(), DecisionCache()
    snapshot = cluster([DELETING], [OLD, protected], refusals={protected.uid: Refusal(NOW, 3, "no")})
    assert decide(snapshot, policy(), NOW + 1, memory).actions == ()
    *_, again = decide(snapshot, policy(), NOW - 200, memory).actions
    assert isinstance(again, EvictPod)


def test_one_protected_pod_does_not_keep_the_others() -> None:
    protected, free = gpu_pod(name="a"), gpu_pod(name="b")
    answer = ask(DELETING, OLD, protected, free, refusals={protected.uid: Refusal(NOW, 3, "no")})
    assert answer.evicted == ["b"]
    assert answer.reason is Reason.EVICTION_REFUSED


def test_a_cordon_that_somebody_lifted_is_put_back_and_is_ours() -> None:
    lifted = under_way(DELETION, foreign=True, cordoned=False)
    answer = ask(lifted, OLD, gpu_pod())
    assert answer.patch.unschedulable is True
    assert answer.entered == []
    assert answer.record.cordon is CordonOwner.GPUWARD
    assert answer.annotations == {names.INITIALLY_UNSCHEDULABLE: None}


BARE = gpu_pod(owner=None)


@pytest.mark.weakness(6)
@pytest.mark.parametrize(
    ("pods", "now", "cause"),
    [
        ([BARE], NOW, "pod default/train cannot be evicted: no controller would start it again: "
                      "set upgradePolicy.podDeletion.force if it may be lost"),
        ([gpu_pod()], ADMITTED + 300, "after 300 s these were still there: default/train (no)"),
        ([gpu_pod(deleting=True)], ADMITTED + 300, "after 300 s these were still there: default/train (terminating)"),
    ],
    ids=["blocked", "too slow", "still terminating"],
)
@pytest.mark.parametrize("foreign", [False, True])
def test_an_eviction_that_cannot_be_fails_the_node_and_leaves_it_serving(
    pods: list[PodView], now: float, cause: str, foreign: bool
) -> None:
    answer = ask(under_way(DELETION, foreign=foreign), OLD, *pods, now=now, refusals=asked(*pods))
    assert answer.entered == ["upgrade-failed"]
    assert answer.evicted == []
    assert answer.messages == ["Failed to delete workload pods on the node for the driver upgrade, " + cause]
    assert answer.failure == Failure(DELETION, cause, now, untried=True)
    assert answer.patch.unschedulable is (None if foreign else False)
    assert answer.record.cordon is (CordonOwner.OTHER if foreign else None)
    assert arguments(answer.hold.what) == {"cause": cause, "step": DELETION, "now": "", "retry": 1, "retries": 3}


def test_the_reason_of_a_refusal_is_in_the_cause() -> None:
    protected = gpu_pod()
    answer = ask(DELETING, OLD, protected, refusals={protected.uid: Refusal(NOW, 3, "budget x")}, now=ADMITTED + 300)
    assert answer.record.failure is not None
    assert answer.record.failure.cause == "after 300 s these were still there: default/train (budget x)"


def test_without_a_timeout_eviction_goes_on_without_end() -> None:
    answer = ask(DELETING, OLD, gpu_pod(), policy=policy(timeout=0), now=NOW + 1e9)
    assert answer.evicted == ["train"]
    assert answer.plan.wake_at is None


def test_a_node_whose_driver_was_replaced_already_stays_cordoned_when_eviction_fails() -> None:
    replaced_once = driver_pod(driver="555", created=ADMITTED + 10)
    answer = ask(DELETING, replaced_once, BARE)
    assert answer.entered == ["upgrade-failed"]
    assert answer.patch.unschedulable is None
    assert answer.record.cordon is CordonOwner.GPUWARD


def test_where_a_drain_is_allowed_it_comes_next() -> None:
    answer = ask(DELETING, OLD, BARE, policy=policy(drain=DrainSettings(enable=True, force=True)))
    assert answer.entered == ["drain-required"]
    assert answer.evicted == ["train"]
    assert [message.split(",")[0] for message in answer.messages] == [
        "Failed to delete workload pods on the node for the driver upgrade",
        "Pod deletion failed but drain is enabled in spec. Will attempt a node drain",
        "Scheduling drain of the node",
    ]


# Drain.

DRAINED = under_way(DRAINING)


def test_a_drain_evicts_everything_it_takes() -> None:
    answer = ask(DRAINED, OLD, validator(), gpu_pod(name="a"), pod(name="b"), pod(name="d", owner="DaemonSet"), policy=DRAIN)
    assert answer.evicted == ["a", "b"]
    assert answer.plan.wake_at == ADMITTED + 300


def test_a_drained_node_goes_on_and_says_so() -> None:
    answer = ask(DRAINED, OLD, validator(), policy=DRAIN)
    assert answer.entered == ["pod-restart-required"]
    assert answer.messages == ["Successfully drained the node"]


def test_a_drain_that_the_policy_no_longer_wants_is_left_out() -> None:
    assert ask(DRAINED, OLD, pod()).entered == ["pod-restart-required"]
    assert ask(DRAINED, OLD, pod(), gpu_pod()).entered == ["pod-restart-required", "pod-deletion-required"]


@pytest.mark.parametrize("who", [gpu_pod(owner="DaemonSet"), gpu_pod(owner="Node", mirror=True), pod(owner=None)])
def test_a_drain_that_cannot_be_fails_the_node_and_leaves_it_serving(who: PodView) -> None:
    answer = ask(DRAINED, OLD, who, policy=DRAIN)
    assert answer.entered == ["upgrade-failed"]
    assert answer.messages[0].startswith(f"Failed to drain the node, pod {who.ref} cannot be evicted: ")
    assert answer.patch.unschedulable is False


def test_a_drain_has_its_own_timeout() -> None:
    short = policy(drain=DrainSettings(enable=True, timeout_seconds=61))
    assert ask(DRAINED, OLD, pod(), policy=short).evicted == ["web"]
    assert ask(DRAINED, OLD, pod(), policy=short, now=NOW + 1, refusals=asked(pod())).entered == ["upgrade-failed"]


@pytest.mark.weakness(7)
def test_a_gpu_pod_that_a_drain_passes_over_never_sends_the_node_round_in_circles() -> None:
    answer = ask(DELETING, OLD, gpu_pod(owner="DaemonSet"), policy=policy(drain=DrainSettings(enable=True, force=True)))
    assert answer.entered == ["drain-required", "upgrade-failed"]


# Rollback, in each of the four.


@pytest.mark.weakness(9)
@pytest.mark.parametrize("state", sorted(UNDISTURBED))
@pytest.mark.parametrize("foreign", [False, True])
def test_a_rolled_back_target_sends_an_undisturbed_node_back_into_service(state: State, foreign: bool) -> None:
    clocks = {names.WAIT_FOR_JOBS_SINCE: "17", names.VALIDATION_SINCE: "17"}
    view = under_way(state, target="570", foreign=foreign, annotations=clocks)
    rules = policy(wait_for="app=job", drain=DrainSettings(enable=True))
    answer = ask(view, driver_pod(driver="560"), gpu_pod(), JOB, policy=rules)
    assert answer.entered == (["upgrade-done"] if foreign else ["uncordon-required", "upgrade-done"])
    assert answer.evicted == []
    assert answer.patch.unschedulable is (None if foreign else False)
    assert answer.record.cordon is None
    initially: dict[str, None] = {names.INITIALLY_UNSCHEDULABLE: None} if foreign else {}
    assert answer.annotations == {**dict.fromkeys(clocks), **initially}


@pytest.mark.parametrize("state", sorted(UNDISTURBED))
@pytest.mark.parametrize("foreign", [False, True])
def test_a_rolled_back_target_that_is_not_loaded_sends_an_undisturbed_node_back_to_those_that_wait(
    state: State, foreign: bool
) -> None:
    crashed = driver_pod(driver="560", ready=False)
    answer = ask(under_way(state, foreign=foreign), crashed, gpu_pod())
    assert answer.entered == ["upgrade-required"]
    assert answer.patch.unschedulable is (None if foreign else False)
    assert (answer.reason, answer.others) == (Reason.DRIVER_STARTING, ())


@pytest.mark.parametrize("state", sorted(UNDISTURBED))
@pytest.mark.parametrize(
    "view",
    [{"forced": True}, {"annotations": {names.UPGRADE_REQUESTED: "true"}}, {"annotations": {names.SAFE_LOAD: "x"}}],
    ids=["forced", "requested again", "safe load"],
)
def test_a_node_that_was_asked_for_is_not_turned_back(state: State, view: dict[str, Any]) -> None:
    answer = ask(under_way(state, **view), driver_pod(driver="560"), gpu_pod(), policy=DRAIN)
    assert answer.state in (DELETION, DRAINING)
    assert answer.evicted == ["train"]


def test_a_driver_pod_that_somebody_replaced_meanwhile_is_validated_and_not_trusted() -> None:
    answer = ask(DELETING, driver_pod(driver="560", created=NOW - 5), validator(ready=False, created=NOW - 5))
    assert answer.entered == ["pod-restart-required", "validation-required"]
    assert answer.reason is Reason.VALIDATOR_STARTING


@pytest.mark.parametrize("state", sorted(UNDISTURBED))
@pytest.mark.parametrize("on", [True, False])
def test_nobody_is_evicted_for_a_driver_that_has_come_already(state: State, on: bool) -> None:
    """As where labels took the old one away and were put right: it is validated, with upgrades off, too."""
    come = driver_pod(driver="560", created=NOW - 5)
    rules = policy(wait_for="app=job", drain=DrainSettings(enable=True), auto_upgrade=on)
    answer = ask(under_way(state), come, gpu_pod(), JOB, validator(ready=False, created=NOW - 5), policy=rules)
    assert (answer.state, answer.evicted) == (State.VALIDATION_REQUIRED, [])


@pytest.mark.parametrize("state", sorted(UNDISTURBED))
@pytest.mark.parametrize("ready", [False, True])
def test_pods_have_to_go_for_a_driver_that_is_not_loaded_or_is_to_be_replaced(state: State, ready: bool) -> None:
    come = driver_pod(driver="560", created=NOW - 5, ready=ready)
    view = under_way(state, annotations={names.UPGRADE_REQUESTED: "true"} if ready else {})
    assert ask(view, come, gpu_pod(), policy=DRAIN).evicted == ["train"]


def test_a_cordon_that_somebody_lifts_is_put_back_though_every_pod_is_terminating_already() -> None:
    lifted = under_way(DELETION, foreign=True, cordoned=False)
    assert ask(lifted, OLD, msgspec.structs.replace(gpu_pod(), deleting=True)).patch.unschedulable is True


@pytest.mark.parametrize(("created", "tolerates", "named"), [(NOW, False, True), (NOW, True, False), (LONG_AGO, False, False)])
def test_pods_that_came_because_somebody_lifted_the_cordon_are_told_by_that(created: float, tolerates: bool, named: bool) -> None:
    view = under_way(State.POD_DELETION_REQUIRED, cordoned=False)
    come = gpu_pod(created=created, tolerates_cordon=tolerates)
    answer = ask(view, driver_pod(), come)
    assert (answer.reason is Reason.UNCORDONED) is named
    assert (answer.record.lifted, answer.patch.unschedulable) == (1, True)
    late = msgspec.structs.replace(view, unschedulable=True, record=answer.record)
    assert come.owner is not None
    seen = cluster([late], [driver_pod(), come])
    seen = msgspec.structs.replace(seen, evicted={"n0": {come.owner.uid: Evicted(NOW, ())}})
    failed = Answer(decide(seen, policy(), NOW + 3600))
    assert failed.failure is not None
    assert ("somebody has lifted the cordon once)" in failed.failure.cause) is named


def test_a_removal_that_evicts_nobody_ends_a_drain_that_is_under_way() -> None:
    """As where upgrades were paused in mid-drain, and the driver is switched off then."""
    web, rules = pod(name="web"), msgspec.structs.replace(DRAIN, free_only=True)
    assert ask(under_way(DRAINING), OLD, web, policy=DRAIN).evicted == ["web"]
    answer = ask(under_way(DRAINING), OLD, web, policy=rules)
    assert (answer.evicted, answer.state) == ([], State.POD_RESTART_REQUIRED)


@pytest.mark.parametrize(("asked_at", "fails"), [(ADMITTED + 299, True), (ADMITTED + 300, False)])
def test_pods_that_were_asked_in_time_get_no_more_of_it(asked_at: float, fails: bool) -> None:
    going, stays = gpu_pod(name="going", deleting=True, grace=3600.0), gpu_pod(name="stays")
    assert going.owner is not None
    seen = cluster([DELETING], [OLD, going, stays], refusals=asked(stays))
    seen = msgspec.structs.replace(seen, evicted={"n0": {going.owner.uid: Evicted(asked_at, (going.uid,))}})
    answer = Answer(decide(seen, policy(), ADMITTED + 301))
    assert (answer.state is State.FAILED) is fails
    assert fails or answer.hold.until == ADMITTED + 600


def test_what_comes_at_the_end_of_the_time_is_told_by_who_does_not_know_who_was_asked() -> None:
    seen = cluster([DELETING], [OLD, gpu_pod()])
    told = at_its_time(seen, policy(), "n0", decide(seen, policy(), NOW))
    assert told == "its upgrade fails, the node is uncordoned, and it is tried again later"
