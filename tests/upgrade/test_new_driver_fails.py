"""A new driver that is in trouble on its first node: the others keep theirs until it runs somewhere, or a person says go on."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.explain import arguments, sentence
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import ADMITTED, NOW, driver_pod, node, policy, record, under_way, validator
from tests.upgrade.world import apply

QUEUED = node("n9", State.UPGRADE_REQUIRED, remembers=record(State.UPGRADE_REQUIRED, target="550"))
MANY = policy(parallel=0)


def trying(**pod: object) -> tuple[list[NodeView], list[PodView]]:
    """Build a node that is being tried with the new driver, whose pod is like this."""
    new = msgspec.structs.replace(driver_pod("n0", "560", created=NOW - 30, ready=False), **pod)
    return [under_way(State.POD_RESTART_REQUIRED, name="n0")], [new]


def fleet(*more: tuple[list[NodeView], list[PodView]]) -> Snapshot:
    views = [view for views, _ in more for view in views]
    pods = [pod for _, pods in more for pod in pods]
    return build.cluster([*views, QUEUED], [*pods, driver_pod("n9"), validator("n9")])


def held(snapshot: Snapshot, rules: UpgradePolicy = MANY) -> Hold | None:
    """Return why the node that waits does not start, if it is for this."""
    hold = decide(snapshot, rules, NOW).nodes["n9"].hold
    return hold if hold is not None and hold.reason is Reason.NEW_DRIVER_FAILS else None


DONE = [node("n1", State.DONE, remembers=record(State.DONE))], [driver_pod("n1", "560"), validator("n1")]


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"waiting": "ImagePullBackOff"}, "ImagePullBackOff"),
        ({"waiting": "CrashLoopBackOff", "restarts": 2}, "CrashLoopBackOff, 2 restarts"),
        ({"restarts": 1}, "it was restarted once"),
        ({"restarts": 3}, "it was restarted 3 times"),
    ],
)
def test_the_first_trouble_of_a_new_driver_pod_holds_the_others_and_is_named(pod: dict[str, object], why: str) -> None:
    hold = held(fleet(trying(**pod)))
    assert hold is not None
    assert sentence(hold) == (
        f"no more nodes start: none is up to date with the new driver yet, and node n0 is in trouble with it: {why}; "
        "see `gpuward explain n0`, then correct what is wrong or let the rollout go on with `gpuward resume`"
    )


@pytest.mark.parametrize("step", [State.POD_RESTART_REQUIRED, State.VALIDATION_REQUIRED])
def test_so_does_a_node_whose_deadline_has_passed(step: State) -> None:
    failed = node("n0", State.FAILED, remembers=record(State.FAILED, failed=step, ours=True), cordoned=True)
    hold = held(fleet(([failed], [])))
    assert hold is not None
    assert arguments(hold.what)["why"] == "it broke"


@pytest.mark.parametrize(("ready", "pods", "counts"), [
    (True, [], True),
    (False, [], False),
    (True, [driver_pod("n0", deleting=True)], False),
    (False, [driver_pod("n0", deleting=True)], False),
    (False, [driver_pod("n0", "560", created=NOW - 30, ready=False, phase="Pending", begun=False)], False),
    (False, [driver_pod("n0", "560", created=NOW - 30, ready=False)], True),
    (True, [driver_pod("n0", "560", created=NOW - 30, ready=False)], True),
], ids=["no pod", "no pod, away", "old pod", "old pod, away", "not begun, away", "begun, away", "begun"])
def test_only_a_driver_that_a_node_came_to_is_in_trouble_on_it(ready: bool, pods: list[PodView], counts: bool) -> None:
    late = under_way(State.POD_RESTART_REQUIRED, name="n0", since=NOW - 1800, started=NOW - 1900, ready=ready,
                     pods=("uid-driver-550-n0-1699913600",))
    rules = policy(parallel=0)
    snapshot = fleet(([late], pods))
    (written,) = (action for action in decide(snapshot, rules, NOW).actions if getattr(action, "node", None) == late.ref)
    failed = apply(snapshot, [written]).nodes["n0"]
    assert (failed.state, failed.record is not None) == (State.FAILED, True)
    assert failed.record is not None
    assert failed.record.failure is not None
    assert failed.record.failure.cause.startswith("still waits for" if ready else "the node is not Ready, still waits for ")
    assert (held(msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, "n0": failed})) is not None) is counts


def test_a_driver_that_crashed_stays_in_trouble_when_the_machine_dies_in_the_next_attempt() -> None:
    before = record(State.FAILED, failed=State.POD_RESTART_REQUIRED).failure
    late = under_way(State.POD_RESTART_REQUIRED, name="n0", since=NOW - 1800, ready=False)
    again = msgspec.structs.replace(late.record, failure=before)  # type: ignore[type-var]
    snapshot = fleet(([msgspec.structs.replace(late, record=again)], []))
    (written,) = (action for action in decide(snapshot, MANY, NOW).actions if getattr(action, "node", None) == late.ref)
    assert held(msgspec.structs.replace(snapshot, nodes=apply(snapshot, [written]).nodes)) is not None


def test_a_node_whose_pods_could_not_be_evicted_says_nothing_about_the_driver() -> None:
    failed = [node("n0", State.FAILED, remembers=record(State.FAILED, failed=State.POD_DELETION_REQUIRED))], [driver_pod("n0")]
    assert held(fleet(failed)) is None


@pytest.mark.parametrize("pod", [{}, {"waiting": "PodInitializing"}, {"waiting": "ContainerCreating"}])
def test_a_driver_that_just_takes_its_time_holds_nobody(pod: dict[str, object]) -> None:
    assert held(fleet(trying(**pod))) is None


def test_one_node_on_which_the_driver_is_validated_is_enough() -> None:
    broken = trying(waiting="CrashLoopBackOff")
    assert held(fleet(broken)) is not None
    assert held(fleet(broken, DONE)) is None


def test_a_driver_that_is_loaded_and_not_validated_is_not_enough() -> None:
    unseen = DONE[0], [driver_pod("n1", "560"), validator("n1", ready=False)]
    assert held(fleet(trying(waiting="CrashLoopBackOff"), unseen)) is not None


@pytest.mark.parametrize(("resumed_at", "goes_on"), [(ADMITTED - 1, False), (ADMITTED, True)])
def test_a_person_may_let_it_go_on(resumed_at: float, goes_on: bool) -> None:
    rules = policy(parallel=0, rollout=RolloutSettings(resumed_at=resumed_at))
    assert (held(fleet(trying(waiting="CrashLoopBackOff")), rules) is None) is goes_on


def test_whoever_let_it_go_on_need_not_say_so_again_when_the_node_is_tried_again() -> None:
    rules = policy(parallel=0, rollout=RolloutSettings(resumed_at=NOW - 600))
    failure = msgspec.structs.replace(
        record(State.FAILED, failed=State.POD_RESTART_REQUIRED).failure, begun=NOW - 700, at=NOW - 1)  # type: ignore[type-var]
    again = msgspec.structs.replace(record(State.POD_RESTART_REQUIRED, ours=True), failure=failure, started=NOW - 60)
    view = node("n0", State.POD_RESTART_REQUIRED, remembers=again, cordoned=True)
    assert held(fleet(([view], trying(waiting="CrashLoopBackOff")[1])), rules) is None


def test_a_node_that_somebody_asks_for_by_hand_is_tried() -> None:
    snapshot = fleet(trying(waiting="CrashLoopBackOff"))
    asked = msgspec.structs.replace(QUEUED, annotations={**QUEUED.annotations, names.UPGRADE_REQUESTED: "true"})
    assert held(snapshot) is not None
    assert held(msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, "n9": asked})) is None


def test_the_trouble_of_another_daemonsets_driver_holds_nobody() -> None:
    """Of two kernels one may lack an image: nodes of the other one go on."""
    views, pods = trying(waiting="ImagePullBackOff")
    plain = msgspec.structs.replace(build.daemonset(name="ds-b", uid="uid-ds-b"), owner=None)
    other = msgspec.structs.replace(pods[0], owner=msgspec.structs.replace(pods[0].owner, uid="uid-ds-b"))  # type: ignore[type-var]
    snapshot = fleet((views, [other]))
    both = msgspec.structs.replace(
        snapshot, daemonsets=(*snapshot.daemonsets, plain),
        revisions=(*snapshot.revisions, build.revision("560", 1, owner="uid-ds-b")),
    )
    assert held(fleet((views, pods))) is not None
    renamed = msgspec.structs.replace(both.revisions[-1], hash="570")
    moved = msgspec.structs.replace(other, labels={**other.labels, names.REVISION_HASH: "570"})
    pods_there = {**both.pods, "n0": (moved,)}
    assert held(msgspec.structs.replace(both, revisions=(*both.revisions[:-1], renamed), pods=pods_there)) is None


def test_a_rollout_that_was_resumed_for_one_driver_holds_for_the_next_one_on_nodes_that_were_under_way_already() -> None:
    """The node began under the driver before, which somebody let go on; its trouble with the newer one is news."""
    snapshot = fleet(trying(waiting="CrashLoopBackOff", restarts=2))
    resumed = msgspec.structs.replace(MANY, rollout=RolloutSettings(resumed_at=NOW - 60))
    assert held(snapshot, resumed) is None
    newer = tuple(msgspec.structs.replace(each, created=NOW - 40) if each.hash == "560" else each for each in snapshot.revisions)
    assert held(msgspec.structs.replace(snapshot, revisions=newer), resumed) is not None


def test_a_resumption_that_is_to_come_forgives_nothing() -> None:
    """A clock that is ahead would take the brakes off until its time has come."""
    ahead = policy(parallel=0, rollout=RolloutSettings(resumed_at=NOW + 3600))
    assert held(fleet(trying(waiting="CrashLoopBackOff")), ahead) is not None
    skewed = policy(parallel=0, rollout=RolloutSettings(resumed_at=NOW + 30))
    assert held(fleet(trying(waiting="CrashLoopBackOff")), skewed) is None
