"""`killAtDeadline`: what is still there at the end of an eviction's time is deleted, with its own grace, and only then."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.actions import DeletePod
from gpuward.model.explain import sentence
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Refusal
from gpuward.model.states import State
from gpuward.model.views import PodView
from gpuward.upgrade.decide import decide
from tests.build import ADMITTED, NOW, cluster, driver_pod, gpu_pod, pod, policy, under_way
from tests.upgrade.one import Answer, ask, asked

DELETION, DRAINING = State.POD_DELETION_REQUIRED, State.DRAIN_REQUIRED
DELETING, OLD = under_way(DELETION), driver_pod()
END = ADMITTED + 300
"""When the default timeout of the eviction is over."""


def killing(**rest: object) -> UpgradePolicy:
    """Build a policy that kills at the deadline."""
    return policy(rollout=RolloutSettings(kill_at_deadline=True), **rest)  # type: ignore[arg-type]


def test_until_its_time_is_up_a_pod_is_evicted_and_not_deleted() -> None:
    answer = ask(DELETING, OLD, gpu_pod(), policy=killing(), now=END - 1)
    assert (answer.evicted, answer.deleted, answer.plan.wake_at) == (["train"], [], END)


@pytest.mark.weakness(24)
def test_when_its_time_is_up_it_is_deleted_with_its_own_grace_whatever_its_budget_says() -> None:
    pods = [gpu_pod(name="a", grace=120.0), gpu_pod(name="b", grace=5.0)]
    refusals = asked(*pods) | {pods[0].uid: Refusal(END - 1, 9, "the budget says no")}
    answer = ask(DELETING, OLD, *pods, policy=killing(), now=END, refusals=refusals)
    assert (answer.evicted, answer.deleted) == ([], ["a", "b"])
    assert not any(action.last_look for action in answer.others if isinstance(action, DeletePod))
    assert answer.reason is Reason.KILLING
    assert answer.plan.wake_at == answer.hold.until == END + 120 + 60, "the longest grace, and a minute"


def test_a_killed_pod_is_not_killed_twice_but_waited_for() -> None:
    answer = ask(DELETING, OLD, gpu_pod(deleting=True), policy=killing(), now=END + 1)
    assert (answer.reason, answer.plan.actions) == (Reason.KILLING, ())


def test_a_pod_that_may_not_be_killed_is_named_with_the_refusal() -> None:
    pods = [gpu_pod(name="a", deleting=True), gpu_pod(name="b")]
    refusals = {pods[1].uid: Refusal(END + 1, 2, "pods is forbidden")}
    answer = ask(DELETING, OLD, *pods, policy=killing(), now=END + 2, refusals=refusals)
    assert answer.reason is Reason.KILLING
    assert sentence(answer.hold).endswith("pod default/b has ended (2 in all); its deletion is refused: pods is forbidden")
    assert answer.deleted == ["b"], "the right may be given any moment"


def test_a_refused_eviction_is_no_refused_kill() -> None:
    pod = gpu_pod()
    answer = ask(DELETING, OLD, pod, policy=killing(), now=END, refusals={pod.uid: Refusal(END - 1, 9, "the budget says no")})
    assert "refused" not in sentence(answer.hold)


def test_a_pod_that_does_not_end_after_its_grace_fails_the_node() -> None:
    stuck = gpu_pod(deleting=True, grace=30.0)
    assert ask(DELETING, OLD, stuck, policy=killing(), now=END + 89).state is DELETION
    answer = ask(DELETING, OLD, stuck, policy=killing(), now=END + 90)
    assert answer.entered == ["upgrade-failed"]
    assert answer.record.failure is not None
    assert answer.record.failure.cause == "after 390 s these were still there: default/train (terminating)"
    assert answer.patch.unschedulable is False, "its driver was not touched"


@pytest.mark.parametrize("blocked", [gpu_pod(name="bare", owner=None), gpu_pod(name="spool", empty_dir=True)])
def test_pods_that_the_policy_protects_are_never_killed(blocked: PodView) -> None:
    answer = ask(DELETING, OLD, blocked, gpu_pod(), policy=killing(), now=END)
    assert answer.state is State.FAILED
    assert answer.deleted == []


def test_without_the_setting_nothing_is_killed() -> None:
    answer = ask(DELETING, OLD, gpu_pod(), now=END, refusals=asked(gpu_pod()))
    assert (answer.state, answer.deleted) == (State.FAILED, [])


def test_where_nothing_ends_the_eviction_nothing_is_killed() -> None:
    answer = ask(DELETING, OLD, gpu_pod(), policy=killing(timeout=0), now=NOW + 1e9)
    assert (answer.evicted, answer.deleted) == (["train"], [])


def test_a_deadline_of_ours_ends_it_too() -> None:
    settings = RolloutSettings(kill_at_deadline=True, deadlines={DELETION: 90})
    ours, told = policy(timeout=0, rollout=settings), asked(gpu_pod())
    assert ask(DELETING, OLD, gpu_pod(), policy=ours, now=ADMITTED + 90, refusals=told).deleted == ["train"]


def test_a_lifted_cordon_is_put_back_before_pods_are_killed() -> None:
    answer = ask(under_way(DELETION, cordoned=False), OLD, gpu_pod(), policy=killing(), now=END)
    assert answer.patch.unschedulable is True
    assert answer.plan.actions[0] is answer.patch


def test_a_drain_kills_what_it_takes_and_no_more() -> None:
    short = killing(drain=DrainSettings(enable=True, timeout_seconds=100))
    agent = pod(name="agent", owner="DaemonSet")
    answer = ask(under_way(DRAINING), OLD, pod(), agent, policy=short, now=ADMITTED + 100, refusals=asked(pod()))
    assert answer.deleted == ["web"]


def test_a_pod_that_comes_while_others_are_killed_is_killed_as_well() -> None:
    late = msgspec.structs.replace(gpu_pod(name="late"), created=END)
    first = ask(DELETING, OLD, gpu_pod(deleting=True), late, policy=killing(), now=END + 10)
    assert (first.evicted, first.deleted) == (["late"], []), "its budget is asked first"
    answer = ask(DELETING, OLD, gpu_pod(deleting=True), late, policy=killing(), now=END + 10, refusals=asked(late))
    assert answer.deleted == ["late"]


@pytest.mark.parametrize(("pod", "timeout", "grace"), [
    (gpu_pod(grace=5 * 86400.0), 300, 300), (gpu_pod(grace=5 * 86400.0, deleting=True), 300, 300),
    (gpu_pod(grace=5 * 86400.0), 7200, 7200), (gpu_pod(grace=5 * 86400.0), 30, 300), (gpu_pod(grace=300.0), 30, None),
])
def test_no_grace_is_longer_than_five_minutes_or_than_the_time_to_evict(pod: PodView, timeout: int, grace: int | None) -> None:
    end = ADMITTED + timeout
    answer = ask(DELETING, OLD, pod, policy=killing(timeout=timeout), now=end, refusals=asked(pod))
    assert [action.grace for action in answer.others if isinstance(action, DeletePod)] == [grace]
    assert answer.hold.until == end + (grace or 300) + 60


def test_a_pod_whose_grace_was_shortened_is_not_killed_again() -> None:
    answer = ask(DELETING, OLD, gpu_pod(grace=300.0, deleting=True), policy=killing(), now=END + 1)
    assert (answer.reason, answer.plan.actions) == (Reason.KILLING, ())


def test_who_was_away_for_all_of_that_time_kills_before_the_node_fails() -> None:
    back = END + 3600
    seen = cluster([DELETING], [OLD, gpu_pod()], refusals=asked(gpu_pod()))
    seen = msgspec.structs.replace(seen, watched_since=back)
    assert Answer(decide(seen, killing(), back + 1)).deleted == ["train"]
    gone = msgspec.structs.replace(seen, pods={**seen.pods, "n0": (OLD, gpu_pod(deleting=True))})
    assert Answer(decide(gone, killing(), back + 89)).state is DELETION
    assert Answer(decide(gone, killing(), back + 90)).state is State.FAILED
