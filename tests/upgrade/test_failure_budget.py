"""The failure budget: how many nodes may fail before the rollout pauses, and whom the pause concerns."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.explain import sentence
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import FailureBudget, RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import ADMITTED, NOW, driver_pod, gpu_pod, node, policy, record
from tests.upgrade import world

QUEUED, FAILED = State.UPGRADE_REQUIRED, State.FAILED


def budget(nodes: int = 0, percent: int = 0, **rest: float) -> UpgradePolicy:
    """Build a policy under which so many nodes may fail, and none is tried again."""
    settings = RolloutSettings(failure_budget=FailureBudget(nodes, percent), retries=0, **rest)  # type: ignore[arg-type]
    return policy(parallel=0, rollout=settings)


def broken(name: str, target: str = "560") -> NodeView:
    """Build a node that failed a minute ago and whose driver was not touched."""
    return node(name, FAILED, remembers=record(FAILED, failed=State.POD_DELETION_REQUIRED, target=target))


def rollout(*nodes: NodeView, failed: int = 0, waiting: int = 1) -> Snapshot:
    """Build a fleet of some failed nodes, some that wait, and others; none has pods that would have to leave."""
    views = [broken(f"f{number}") for number in range(failed)]
    views += [node(f"w{number}", QUEUED, remembers=record(QUEUED, target="550")) for number in range(waiting)]
    views += nodes
    return build.cluster(views, [driver_pod(view.name) for view in views])


def paused(snapshot: Snapshot, rules: UpgradePolicy, name: str = "w0") -> bool:
    hold = decide(snapshot, rules, NOW).nodes[name].hold
    return hold is not None and hold.reason is Reason.FAILURE_BUDGET


@pytest.mark.parametrize(
    ("failed", "total", "nodes", "percent", "stops"),
    [
        (0, 4, 0, 0, False),
        (1, 4, 0, 0, True),
        (3, 10, 3, 10, False),
        (4, 10, 3, 10, True),
        (4, 40, 3, 10, False),
        (5, 40, 3, 10, True),
        (4, 49, 3, 10, False),
        (5, 49, 3, 10, True),
        (4, 5, 0, 100, False),
        (1, 5, 0, 10, True),
    ],
)
def test_the_larger_of_count_and_percentage_may_fail(failed: int, total: int, nodes: int, percent: int, stops: bool) -> None:
    assert paused(rollout(failed=failed, waiting=total - failed), budget(nodes, percent)) is stops


def test_the_pause_names_the_first_failed_nodes_and_the_way_out() -> None:
    hold = build.hold_of(decide(rollout(failed=5, waiting=2), budget(2), NOW), "w1")
    assert sentence(hold) == (
        "the rollout is paused: 5 of 7 nodes failed (f0, f1, f2 and 2 more) and 2 may; "
        "see `gpuward explain NODE`, then `gpuward resume`"
    )


def test_failures_before_the_rollout_was_resumed_count_no_more() -> None:
    snapshot = rollout(failed=2)
    assert not paused(snapshot, budget(resumed_at=ADMITTED))
    assert paused(snapshot, budget(resumed_at=ADMITTED - 1))


def test_failures_of_an_older_target_do_not_count() -> None:
    snapshot = rollout(broken("f0", target="555"), broken("f1", target="555"))
    assert not paused(snapshot, budget())
    assert paused(rollout(broken("f0", target="555"), broken("f1")), budget())


def test_a_node_that_was_cured_counts_no_more() -> None:
    snapshot = rollout(node("f0", State.DONE, remembers=record(State.DONE)))
    assert not paused(snapshot, budget())


def test_a_failed_node_that_waits_for_its_next_try_still_counts() -> None:
    again = node("f0", QUEUED, remembers=record(QUEUED, failed=State.POD_DELETION_REQUIRED))
    assert paused(rollout(again), budget())


@pytest.mark.parametrize(
    "asked_for",
    [
        node("x", QUEUED, remembers=record(QUEUED, failed=State.POD_DELETION_REQUIRED)),
        node("x", QUEUED, remembers=record(State.DONE)),
        node("x", QUEUED, annotations={names.UPGRADE_REQUESTED: "true"}),
    ],
    ids=["retried", "relabelled by hand", "requested"],
)
def test_who_failed_or_was_asked_for_by_hand_goes_on(asked_for: NodeView) -> None:
    snapshot = rollout(asked_for, failed=3)
    plan = decide(snapshot, budget(), NOW)
    assert plan.nodes["x"].state is State.POD_RESTART_REQUIRED
    assert paused(snapshot, budget())


def test_nodes_under_way_finish() -> None:
    snapshot = rollout(build.under_way(State.POD_DELETION_REQUIRED, name="x"), failed=3)
    assert decide(snapshot, budget(), NOW).nodes["x"].state is State.POD_RESTART_REQUIRED


def test_a_node_of_another_target_that_failed_is_held_like_any_other() -> None:
    """Its failure is no reason to let it pass: it has not been tried with this target."""
    waiting = node("x", QUEUED, remembers=record(QUEUED, failed=State.POD_DELETION_REQUIRED, target="555"))
    assert paused(rollout(waiting, failed=3), budget(), "x")


@pytest.mark.weakness(5)
def test_a_broken_driver_stops_after_one_node_and_after_one_more_each_time_that_it_is_let_go_on() -> None:
    everywhere = [f"n{number}" for number in range(6)]
    one_by_one = msgspec.structs.replace(budget(1), max_parallel_upgrades=1)
    end = world.rollout(build.fleet(6), one_by_one, broken=everywhere)
    states = [view.state for view in end.end.nodes.values()]
    assert states == [FAILED, QUEUED, QUEUED, QUEUED, QUEUED, QUEUED]
    assert build.hold_of(end.plan, "n1").reason is Reason.NEW_DRIVER_FAILS
    resumed = msgspec.structs.replace(one_by_one, rollout=msgspec.structs.replace(one_by_one.rollout, resumed_at=end.now))
    on = world.rollout(end.end, resumed, now=end.now + 1, broken=everywhere)
    assert [view.state for view in on.end.nodes.values()].count(FAILED) == 2
    assert build.hold_of(on.plan, "n5").reason is Reason.NEW_DRIVER_FAILS, "each resumption lets it be tried on as many more"


def test_a_gpu_pod_on_a_paused_node_stays() -> None:
    snapshot = rollout(failed=1)
    busy = world.with_pods(snapshot, "w0", [driver_pod("w0"), gpu_pod("w0")])
    assert not [action for action in decide(busy, budget(), NOW).actions if action.lane == "w0"]


@pytest.mark.parametrize(("created", "counts"), [(ADMITTED - 1, True), (ADMITTED, False), (NOW - 1, False)])
def test_a_node_that_fails_only_for_pods_that_came_since_it_began_counts_for_nothing(created: float, counts: bool) -> None:
    emptied = build.under_way(State.POD_DELETION_REQUIRED, name="f0")
    late = gpu_pod("f0", "bare", owner=None, created=created)
    snapshot = rollout(emptied)
    snapshot = world.with_pods(snapshot, "f0", [*snapshot.pods["f0"], late])
    after = world.apply(snapshot, decide(snapshot, budget(), NOW).actions)
    assert after.nodes["f0"].state is FAILED
    assert paused(after, budget()) is counts


def test_pods_that_come_back_again_and_again_are_no_trouble_with_the_new_driver() -> None:
    emptied = build.under_way(State.POD_RESTART_REQUIRED, name="f0")
    assert emptied.record is not None
    emptied = msgspec.structs.replace(emptied, record=msgspec.structs.replace(emptied.record, returns=5))
    snapshot = rollout(emptied)
    snapshot = world.with_pods(snapshot, "f0", [*snapshot.pods["f0"], gpu_pod("f0", "late", created=NOW - 1)])
    after = world.apply(snapshot, decide(snapshot, budget(), NOW).actions)
    assert after.nodes["f0"].state is FAILED
    assert decide(after, budget(), NOW).nodes["w0"].state is not QUEUED
