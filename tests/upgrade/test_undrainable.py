"""What becomes of a node whose pods cannot be moved in time."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward.model.actions import EvictPod
from gpuward.model.plan import Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import decode_record, encode_record
from gpuward.model.rollout import RolloutSettings
from gpuward.model.states import State
from gpuward.model.undrainable import Behaviour, GivenUp, UndrainableSettings
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.at_its_time import at_its_time
from gpuward.upgrade.decide import decide
from tests.build import NOW, cluster, driver_pod, gpu_pod, node, policy, record, validator
from tests.upgrade.one import Answer, ask

AFTER = 600.0
DELETION, JOBS = State.POD_DELETION_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED
BACK = GivenUp(NOW - 50, "after 600 s these were still there: default/train")
INSIDE = GivenUp(NOW - 50, "after 600 s these were still there: default/train", quarantined=True)


def rules(behaviour: Behaviour, *, most: int = 1, timeout: int = 0, **rest: Any) -> UpgradePolicy:
    settings = RolloutSettings(undrainable=UndrainableSettings(behaviour, AFTER, most))
    return policy(rollout=settings, timeout=timeout, **rest)


def emptied(*, seconds: float, behaviour: Behaviour, state: State = DELETION, **rest: Any) -> Answer:
    """Decide about a node that has waited for its pods for so long; once its time is up they were asked to go."""
    view = node(state=state, cordoned=True, remembers=record(state, ours=True, since=NOW - seconds))
    asked = state is DELETION and seconds >= min(AFTER, rest.get("timeout") or AFTER)
    return ask(view, driver_pod(), gpu_pod(labels={"app": "job"}, deleting=asked), policy=rules(behaviour, **rest))


@pytest.mark.parametrize("behaviour", list(Behaviour))
def test_pods_are_asked_to_go_before_their_time_counts(behaviour: Behaviour) -> None:
    view = node(state=DELETION, cordoned=True, remembers=record(DELETION, ours=True, since=NOW - 9 * AFTER))
    answer = ask(view, driver_pod(), gpu_pod(), policy=rules(behaviour))
    assert (answer.reason, answer.evicted) == (Reason.EVICTING, ["train"])


@pytest.mark.parametrize("behaviour", list(Behaviour))
def test_pods_have_their_time(behaviour: Behaviour) -> None:
    answer = emptied(seconds=AFTER - 1, behaviour=behaviour)
    assert (answer.reason, answer.evicted) == (Reason.EVICTING, ["train"])
    assert answer.hold.until == (None if behaviour is Behaviour.HOLD else NOW + 1)
    assert answer.plan.wake_at == (None if behaviour is Behaviour.HOLD else NOW + 1)


def test_held_it_goes_on() -> None:
    assert emptied(seconds=9 * AFTER, behaviour=Behaviour.HOLD).reason is Reason.EVICTING


@pytest.mark.parametrize("jobs", ["", "app=job"], ids=["eviction", "completion"])
def test_skipped_it_serves_on_with_its_driver(jobs: str) -> None:
    answer = emptied(seconds=AFTER, behaviour=Behaviour.SKIP, state=JOBS if jobs else DELETION, wait_for=jobs)
    assert (answer.state, answer.patch.unschedulable) == (State.UPGRADE_REQUIRED, False)
    assert answer.record.given_up is not None
    assert answer.record.failure is None
    assert (answer.others, len(answer.messages)) == ((), 1)


@pytest.mark.parametrize("jobs", ["", "app=job"], ids=["eviction", "completion"])
def test_failed_it_serves_on_and_is_tried_again(jobs: str) -> None:
    answer = emptied(seconds=AFTER, behaviour=Behaviour.FAIL, state=JOBS if jobs else DELETION, wait_for=jobs)
    assert (answer.state, answer.patch.unschedulable) == (State.FAILED, False)
    assert answer.failure is not None
    assert "train" in answer.failure.cause


@pytest.mark.parametrize("jobs", ["", "app=job"], ids=["eviction", "completion"])
def test_quarantined_it_stays_cordoned_and_is_left_alone(jobs: str) -> None:
    answer = emptied(seconds=AFTER, behaviour=Behaviour.QUARANTINE, state=JOBS if jobs else DELETION, wait_for=jobs)
    assert (answer.state, answer.patch.unschedulable) == (JOBS if jobs else DELETION, None)
    assert answer.record.given_up is not None
    assert answer.record.given_up.quarantined
    assert (answer.reason, answer.others, len(answer.messages)) == (Reason.QUARANTINED, (), 1)


@pytest.mark.parametrize(("behaviour", "state"), [
    (Behaviour.HOLD, State.FAILED), (Behaviour.FAIL, State.FAILED), (Behaviour.SKIP, State.UPGRADE_REQUIRED),
    (Behaviour.QUARANTINE, DELETION)])
def test_what_would_fail_at_nvidias_timeout_is_given_up_then(behaviour: Behaviour, state: State) -> None:
    answer = emptied(seconds=300, behaviour=behaviour, timeout=300)
    assert answer.state is state
    assert (answer.record.given_up is not None) is (behaviour in (Behaviour.SKIP, Behaviour.QUARANTINE))


def test_no_driver_that_was_touched_is_given_up() -> None:
    view = node(state=DELETION, cordoned=True, remembers=record(DELETION, ours=True, since=NOW - 9 * AFTER))
    for behaviour in Behaviour:
        answer = ask(view, driver_pod(created=NOW), gpu_pod(), policy=rules(behaviour))
        assert answer.state is not State.UPGRADE_REQUIRED
        assert answer.reason not in (Reason.UNDRAINABLE, Reason.QUARANTINED)


def waiting(given_up: GivenUp | None, **rest: Any) -> NodeView:
    return node(state=State.UPGRADE_REQUIRED, remembers=record(
        State.UPGRADE_REQUIRED, given_up=given_up, target=rest.pop("target", "560")), **rest)


def test_one_that_was_given_back_waits_until_its_pods_are_gone_or_somebody_asks() -> None:
    rule = rules(Behaviour.SKIP)
    held = ask(waiting(BACK), driver_pod(), gpu_pod(), policy=rule)
    assert (held.reason, held.plan.actions) == (Reason.UNDRAINABLE, ())
    assert ask(waiting(BACK), driver_pod(), policy=rule).state is not State.UPGRADE_REQUIRED
    asked = waiting(BACK, annotations={"nvidia.com/gpu-driver-upgrade-requested": "true"})
    started = ask(asked, driver_pod(), gpu_pod(), policy=rule)
    assert started.state is DELETION
    assert started.record.given_up is None
    assert ask(waiting(BACK, target="another"), driver_pod(), gpu_pod(), policy=rule).state is DELETION


def inside(**rest: Any) -> NodeView:
    label = record(DELETION, ours=True, since=NOW - 9 * AFTER, given_up=INSIDE, target=rest.pop("target", "560"))
    return node(state=DELETION, cordoned=rest.pop("cordoned", True), remembers=label, **rest)


def test_one_in_quarantine_is_left_alone() -> None:
    answer = ask(inside(), driver_pod(), gpu_pod(), policy=rules(Behaviour.QUARANTINE, timeout=300))
    assert (answer.reason, answer.plan.actions) == (Reason.QUARANTINED, ())


@pytest.mark.parametrize("left", [
    ask(inside(labels={"nvidia.com/gpu-driver-upgrade.skip": "true"}), driver_pod(), gpu_pod(),
        policy=rules(Behaviour.QUARANTINE)),
    ask(inside(annotations={"nvidia.com/gpu-driver-upgrade-requested": "true"}), driver_pod(), gpu_pod(),
        policy=rules(Behaviour.QUARANTINE)),
    ask(inside(), driver_pod(), policy=rules(Behaviour.QUARANTINE)),
    ask(inside(), driver_pod(), gpu_pod(), policy=rules(Behaviour.SKIP)),
    ask(inside(), driver_pod(), gpu_pod(), policy=policy()),
    ask(inside(target="another"), driver_pod(), gpu_pod(), policy=rules(Behaviour.QUARANTINE)),
], ids=["skip", "asked", "pods gone", "other behaviour", "no setting", "another driver"])
def test_it_leaves_quarantine_into_service(left: Answer) -> None:
    assert (left.state, left.patch.unschedulable) == (State.UPGRADE_REQUIRED, False)
    assert left.record.given_up is None


def test_one_whose_cordon_somebody_lifts_serves_on() -> None:
    answer = ask(inside(cordoned=False), driver_pod(), gpu_pod(), policy=rules(Behaviour.QUARANTINE))
    assert (answer.state, answer.patch.unschedulable) == (State.UPGRADE_REQUIRED, None)
    assert answer.record.given_up is not None
    assert not answer.record.given_up.quarantined


def test_one_whose_annotation_somebody_deletes_is_emptied_once_more() -> None:
    view = node(state=DELETION, cordoned=True)
    answer = ask(view, driver_pod(), gpu_pod(), policy=rules(Behaviour.QUARANTINE))
    assert (answer.reason, answer.record.cordon) == (Reason.EVICTING, "gpuward")


def fleet(*nodes: NodeView, rule: UpgradePolicy, asked: bool = False) -> Plan:
    pods: list[PodView] = []
    for each in nodes:
        pods += [driver_pod(each.name), validator(each.name), gpu_pod(each.name, f"train-{each.name}", deleting=asked)]
    return decide(cluster(nodes, pods), rule, NOW)


def stuck(name: str, given_up: GivenUp | None = None, seconds: float = AFTER) -> NodeView:
    return node(name, state=DELETION, cordoned=True,
                remembers=record(DELETION, ours=True, since=NOW - seconds, given_up=given_up))


def test_no_more_than_may_be_are_quarantined_and_those_use_no_slot() -> None:
    queue = node("n3", state=State.UPGRADE_REQUIRED)
    rule = rules(Behaviour.QUARANTINE, most=1, parallel=1, unavailable=1)
    plan = fleet(stuck("n0"), stuck("n1", seconds=AFTER + 1), queue, rule=rule, asked=True)
    gone_in = [name for name, status in plan.nodes.items() if status.quarantined]
    assert gone_in == ["n1"], "it has waited longest"
    assert plan.nodes["n3"].state is State.UPGRADE_REQUIRED, "what it gives back is given out once it is written"
    plan = fleet(stuck("n1", INSIDE), queue, rule=rule)
    assert plan.nodes["n3"].state is DELETION
    plan = fleet(stuck("n1", INSIDE), stuck("n0"), queue, rule=rule)
    assert plan.nodes["n3"].state is State.UPGRADE_REQUIRED
    assert [action.node for action in plan.actions if isinstance(action, EvictPod)] == ["n0"], "it waits as with Hold"
    both = fleet(stuck("n0", INSIDE), stuck("n1", INSIDE), queue, rule=rule)
    assert both.nodes["n3"].state is State.UPGRADE_REQUIRED, "somebody lowered the number"


def test_the_record_keeps_it() -> None:
    for given_up in (None, BACK, INSIDE):
        kept = record(DELETION, given_up=given_up, since=NOW)
        assert decode_record(encode_record(kept)).given_up == given_up


def test_that_a_node_is_quarantined_at_its_time_is_said_in_a_sentence() -> None:
    under = rules(Behaviour.QUARANTINE)
    view = node(state=DELETION, cordoned=True, remembers=record(DELETION, ours=True, since=NOW - 1))
    seen = cluster([view], [driver_pod(), gpu_pod(deleting=True)])
    told = at_its_time(seen, under, "n0", decide(seen, under, NOW))
    assert told.startswith("it is quarantined with its driver, as its pods could not be moved")
