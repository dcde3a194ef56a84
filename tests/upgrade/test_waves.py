"""Which wave a node is in, and that no node starts before all earlier waves are done, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.explain import sentence
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import FailureBudget, RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import AT_REST, IN_PROGRESS, State
from gpuward.model.waves import (
    ApprovalRequired,
    Growth,
    Share,
    Tolerance,
    Wave,
    WaveFailed,
    WaveNotDone,
    WavePhase,
    Word,
)
from gpuward.upgrade.decide import decide
from gpuward.upgrade.wave_nodes import WaveNode, places
from tests import build
from tests.build import NOW
from tests.upgrade import world

replace = msgspec.structs.replace
busy = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine that is busy with other tests makes no example a failure."""
NEW = "560"
SIZES = st.none() | st.integers(1, 4).map(lambda count: Share(count=count)) | st.integers(1, 100).map(
    lambda percent: Share(percent=percent))
WAVES = st.lists(st.builds(Wave, name=st.just("w"), selector=st.sampled_from([{}, {"pool": "a"}, {"pool": "b"}]), nodes=SIZES),
                 max_size=4)


def waving(*waves: Wave, parallel: int = 10, **others: Any) -> UpgradePolicy:
    """Return a policy with waves, under which all nodes could go at once."""
    rollout = RolloutSettings(waves=waves, failure_budget=FailureBudget(100, 100), retries=0, **others)
    return replace(build.policy(parallel=parallel, unavailable="100%"), rollout=rollout)


def said(policy: UpgradePolicy, **words: Word | tuple[Wave, ...] | None) -> UpgradePolicy:
    """Return a policy of which somebody said something, or with other waves."""
    return replace(policy, rollout=replace(policy.rollout, **words))


def upgraded(end: world.Rollout | Snapshot) -> list[str]:
    """Return the nodes that run the new driver, by what is loaded there."""
    snapshot = end if isinstance(end, Snapshot) else end.end
    return [name for name in sorted(snapshot.nodes) if any(
        pod.labels.get("app") == names.DRIVER_APP and pod.revision == NEW for pod in snapshot.pods[name])]


def started(snapshot: Snapshot) -> set[str]:
    return {name for name, node in snapshot.nodes.items() if node.state in IN_PROGRESS} | set(upgraded(snapshot))


def hold(snapshot: Snapshot, policy: UpgradePolicy, name: str, now: float) -> Reason | None:
    """Return what keeps a node in the queue; nothing for one that starts."""
    status = decide(snapshot, policy, now).nodes[name]
    return status.hold.reason if status.hold is not None and status.state is State.UPGRADE_REQUIRED else None


CANARY = Wave("canary", nodes=Share(count=1))


@st.composite
def fleets(draw: st.DrawFn) -> list[WaveNode]:
    """Draw nodes of which some have begun, and some are to be skipped."""
    return [WaveNode(f"n{number}", {"pool": draw(st.sampled_from("ab"))}, began=draw(st.sampled_from((0.0, 0.0, 5.0, 7.0))),
                     skipped=draw(st.booleans())) for number in range(draw(st.integers(0, 8)))]


@busy
@given(fleets(), WAVES)
def test_every_node_is_in_exactly_one_wave_which_it_matches_and_none_has_more_than_its_room(
    nodes: list[WaveNode], waves: list[Wave]
) -> None:
    found = places(nodes, waves)
    assert found.keys() == {node.name for node in nodes}
    for place, wave in enumerate(waves):
        members = [node for node in nodes if found[node.name] == place]
        matching = [node for node in nodes if wave.selector.items() <= node.labels.items()]
        assert all(node in matching for node in members)
        assert wave.nodes is None or len(members) <= wave.nodes.of(len(matching))
        for node in matching:
            if found[node.name] > place and (node.began or not node.skipped):
                assert wave.nodes is not None, "a wave without a number takes all that match"
                assert len(members) == wave.nodes.of(len(matching)), "a node goes on where there is no room"


@busy
@given(fleets(), WAVES, st.data())
def test_the_choice_lasts_while_nodes_go_through_their_waves(
    nodes: list[WaveNode], waves: list[Wave], data: st.DataObject
) -> None:
    nodes = [replace(node, began=0.0) for node in nodes]
    before, now = places(nodes, waves), 1.0
    while waiting := [node for node in nodes if not node.began and not node.skipped]:
        first = min(before[node.name] for node in waiting)
        goes = data.draw(st.sampled_from([node for node in waiting if before[node.name] == first]))
        nodes = [replace(node, began=now, done=True) if node is goes else node for node in nodes]
        now += data.draw(st.sampled_from((0.0, 1.0)))
        assert places(nodes, waves) == before


@busy
@given(fleets(), WAVES)
def test_a_node_that_joins_takes_no_place_of_one_that_has_begun(nodes: list[WaveNode], waves: list[Wave]) -> None:
    begun = [replace(node, began=node.began or 3.0) for node in nodes]
    waves = [replace(wave, nodes=None if wave.nodes is None else Share(count=wave.nodes.count or 1)) for wave in waves]
    before = places(begun, waves)
    for pool in "ab":
        after = places([*begun, WaveNode("a-first-by-name", {"pool": pool}, done=True)], waves)
        assert {name: after[name] for name in before} == before


def goes_in_order(waves: Collection[Wave], nodes: int, broken: Collection[str] = ()) -> None:
    """Play a rollout, and judge from the driver pods: whoever starts in a wave finds all earlier ones done."""
    policy, snapshot = waving(*waves, parallel=3), build.fleet(nodes)
    for number, name in enumerate(sorted(snapshot.nodes)):
        snapshot = world.label(snapshot, name, "pool", "ab"[number % 2])
    place = places([WaveNode(name, node.labels) for name, node in snapshot.nodes.items()], tuple(waves))
    end = world.rollout(snapshot, policy, broken=broken)
    for (before, _), (after, _) in zip(end.history, end.history[1:], strict=False):
        for name in started(after) - started(before):
            earlier = [other for other in before.nodes if place[other] < place[name]]
            unfinished = [other for other in earlier if before.nodes[other].state not in AT_REST or other not in upgraded(before)]
            assert not unfinished, f"{name} of wave {place[name]} starts before {unfinished}"
    if not broken:
        assert upgraded(end) == sorted(snapshot.nodes)


@busy
@given(WAVES, st.integers(1, 6))
def test_no_node_of_a_later_wave_starts_while_an_earlier_one_is_not_done(waves: list[Wave], nodes: int) -> None:
    goes_in_order([replace(wave, name=f"w{place}") for place, wave in enumerate(waves)], nodes)


@pytest.mark.parametrize("waves", [[CANARY], [replace(CANARY, selector={"pool": "b"}), Wave("more", nodes=Share(percent=50))]])
def test_failures_of_a_driver_that_always_fails_stay_in_the_canary(waves: list[Wave]) -> None:
    policy, snapshot = said(waving(*waves)), build.fleet(6)
    for number, name in enumerate(sorted(snapshot.nodes)):
        snapshot = world.label(snapshot, name, "pool", "ab"[number % 2])
    end = world.rollout(snapshot, replace(policy, rollout=replace(policy.rollout, resumed_at=0.0)), broken=list(snapshot.nodes))
    failed = [name for name, node in end.end.nodes.items() if node.state is State.FAILED]
    assert len(failed) == 1
    assert started(end.end) <= set(failed)


def test_what_fails_within_the_budget_of_a_wave_holds_nobody_once_another_node_of_it_is_done() -> None:
    one = Wave("canary", nodes=Share(count=2), max_unavailable=Share(count=1), tolerance=Tolerance(1))
    policy = said(waving(one), promoted=None)
    end = world.rollout(build.fleet(4), policy, broken=["n1"])
    assert upgraded(end) == ["n0", "n1", "n2", "n3"]
    assert [name for name, node in end.end.nodes.items() if node.state is State.FAILED] == ["n1"]


def test_a_wave_of_which_all_nodes_failed_is_not_done_although_its_budget_allows_it() -> None:
    end = world.rollout(build.fleet(3), waving(replace(CANARY, tolerance=Tolerance(5))), broken=["n0"])
    assert started(end.end) == {"n0"}
    assert build.hold_of(end.plan, "n1").reason in (Reason.WAVE_NOT_DONE, Reason.NEW_DRIVER_FAILS)


def test_a_failure_beyond_the_budget_of_a_wave_is_named() -> None:
    one = Wave("canary", nodes=Share(count=2), max_unavailable=Share(count=1))
    end = world.rollout(build.fleet(4), waving(one), broken=["n1"])
    told = build.hold_of(end.plan, "n2")
    assert told.reason is Reason.WAVE_FAILED
    assert told.what == WaveFailed("canary", 1, 2, 0, ("n1",))
    assert upgraded(end) == ["n0", "n1"]


def test_a_wave_soaks_from_when_its_last_node_was_done_and_is_told_until_when() -> None:
    policy, fleet = waving(replace(CANARY, soak=3600.0)), build.fleet(3)
    history = world.rollout(fleet, policy).history
    at = next(number for number, (snapshot, _) in enumerate(history) if len(started(snapshot)) > 1)
    before, _ = history[at - 1]
    done = before.nodes["n0"].record
    assert done is not None
    soaking = [plan for _, plan in history if plan.holds.get("n1") and plan.holds["n1"].reason is Reason.WAVE_SOAKING]
    assert soaking, "it is said that it soaks"
    assert soaking[0].holds["n1"].until == done.since + 3600.0
    assert soaking[0].wake_at == done.since + 3600.0
    assert [wave.phase for wave in soaking[0].waves[0].waves] == [WavePhase.SOAKS, WavePhase.WAITS]
    assert decide(before, policy, done.since + 3599.0).holds["n1"].reason is Reason.WAVE_SOAKING
    assert hold(before, policy, "n1", done.since + 3600.0) is None


def canary_done(**others: Any) -> tuple[Snapshot, UpgradePolicy, float]:
    """Return a fleet whose first node is done, and that waits for approval; when it was done comes last."""
    policy = waving(replace(CANARY, approval=True, **others))
    end = world.rollout(build.fleet(4), policy)
    assert upgraded(end) == ["n0"]
    record = end.end.nodes["n0"].record
    assert record is not None
    return end.end, policy, record.since


def test_an_approval_is_for_the_driver_and_for_what_was_done_when_it_was_given() -> None:
    snapshot, policy, done = canary_done()
    now = done + 60
    assert hold(snapshot, policy, "n1", now) is Reason.APPROVAL_REQUIRED
    useless_words = (Word(done + 30, "a", ("old",)), Word(done - 1, "a", (NEW,)), Word(now + 3600, "a", (NEW,)), Word(done, "a"))
    for useless in useless_words:
        assert hold(snapshot, said(policy, approved=useless), "n1", now) is Reason.APPROVAL_REQUIRED
    assert hold(snapshot, said(policy, approved=Word(done, "a", ("other", NEW))), "n1", now) is None
    again = world.retarget(snapshot, "newer", digest="newer")
    approved = said(policy, approved=Word(done + 30, "a", (NEW,)))
    end = world.rollout(again, approved, now=now)
    newer = [name for name in end.end.nodes if any(pod.revision == "newer" for pod in end.end.pods[name])]
    assert newer == ["n0"], "another driver begins with the canary, and asks again"
    assert build.hold_of(end.plan, "n1").reason is Reason.APPROVAL_REQUIRED


def test_each_wave_asks_for_an_approval_of_its_own() -> None:
    policy = waving(replace(CANARY, approval=True), Wave("more", nodes=Share(count=2), approval=True))
    end = world.rollout(build.fleet(4), policy)
    approved = said(policy, approved=Word(end.now, "a", (NEW,)))
    end = world.rollout(end.end, approved, now=end.now + 1)
    assert upgraded(end) == ["n0", "n1", "n2"]
    told = build.hold_of(end.plan, "n3")
    assert told.what == ApprovalRequired("more")
    end = world.rollout(end.end, said(policy, approved=Word(end.now, "a", (NEW,))), now=end.now + 1)
    assert upgraded(end) == ["n0", "n1", "n2", "n3"]


def test_nodes_have_their_turn_wave_after_wave_but_for_one_that_is_asked_for_by_hand() -> None:
    """Within a wave those go first that disturb least, here by name; `n1` runs a pod."""
    nodes = [build.node(f"n{number}", State.UPGRADE_REQUIRED, remembers=build.record(State.UPGRADE_REQUIRED), labels=labels,
                        annotations=notes)
             for number, (labels, notes) in enumerate((
                 ({}, {}), ({"pool": "test"}, {}), ({"pool": "test"}, {}), ({}, {names.UPGRADE_REQUESTED: "true"})))]
    pods = [pod for node in nodes for pod in (build.driver_pod(node.name), build.validator(node.name))]
    snapshot = build.cluster(nodes, [*pods, build.gpu_pod("n1", "job", ready=True, phase="Running")])
    policy = replace(waving(Wave("test", selector={"pool": "test"})), max_parallel_upgrades=1)
    plan = decide(snapshot, policy, NOW)
    assert plan.nodes["n2"].state is not State.UPGRADE_REQUIRED, "it goes now"
    assert [plan.nodes[name].turn for name in ("n3", "n1", "n0")] == [1, 2, 3]


def test_a_wave_without_a_node_is_not_called_done() -> None:
    policy = waving(Wave("canary", selector={"pool": "nosuch"}, approval=True))
    told = build.hold_of(world.rollout(build.fleet(2), policy).plan, "n1")
    assert sentence(told) == ("wave canary has no node (see its nodeSelector), so that nothing has been tried: waits for "
                              "approval: gpuward approve")


def test_promoting_ends_a_soak_and_waits_no_longer_for_the_nodes_that_it_names() -> None:
    policy = waving(replace(CANARY, nodes=Share(count=2), soak=3600.0))
    snapshot = world.set_ready(build.fleet(4), "n1", False)
    now = NOW + 600
    for _ in range(60):
        snapshot, now = world.turn(world.apply(snapshot, decide(snapshot, policy, now).actions, now), now), now + 1
    assert upgraded(snapshot) == ["n0"]
    assert hold(snapshot, policy, "n2", now) is Reason.WAVE_SOAKING
    assert hold(snapshot, said(policy, promoted=Word(now, "a", (NEW,))), "n2", now) is None
    ready = world.set_ready(snapshot, "n1", True)
    waits = decide(ready, said(policy, promoted=Word(now, "a", (NEW,))), now).holds["n2"]
    assert waits.reason is Reason.WAVE_NOT_DONE, "a node that can be upgraded again is waited for again"
    assert hold(ready, said(policy, promoted=Word(now, "a", (NEW,), ("n1",))), "n2", now) is None


def test_skipped_nodes_take_no_room_and_hold_nobody() -> None:
    policy = waving(CANARY)
    end = world.rollout(world.label(build.fleet(3), "n0", names.UPGRADE_SKIP, "true"), policy)
    assert upgraded(end) == ["n1", "n2"]
    all_of_it = Wave("canary", selector={"pool": "c"})
    snapshot = world.label(world.label(build.fleet(3), "n0", names.UPGRADE_SKIP, "true"), "n0", "pool", "c")
    assert upgraded(world.rollout(snapshot, waving(all_of_it))) == ["n1", "n2"]


def test_a_skipped_node_that_somebody_asks_for_takes_no_room_of_its_wave() -> None:
    """It would pass for a canary that is done, and all others would start at once."""
    asked = build.node("n0", State.UPGRADE_REQUIRED, remembers=build.seen(State.DONE, target="550", started=NOW - 900),
                       labels={names.UPGRADE_SKIP: "true"})
    fleet, now = build.fleet(3, state=State.UPGRADE_REQUIRED), NOW
    snapshot = replace(fleet, nodes={**fleet.nodes, "n0": asked})
    for _ in range(3):
        snapshot, now = world.apply(snapshot, decide(snapshot, waving(CANARY), now).actions, now), now + 1
        assert started(snapshot) <= {"n1"}


def test_a_node_that_is_not_ready_holds_the_next_wave_only_while_no_other_is_done() -> None:
    alone = world.set_ready(build.fleet(3), "n0", False)
    end = world.rollout(alone, waving(CANARY))
    assert upgraded(end) == []
    assert build.hold_of(end.plan, "n1").what == WaveNotDone("canary", 0, 1, ("n0",), 1)
    assert upgraded(world.rollout(alone, waving(replace(CANARY, nodes=Share(count=2))))) == ["n1", "n2"]


def test_a_node_that_goes_down_in_its_upgrade_is_waited_for() -> None:
    """Its pods are as its kubelet told of them last."""
    policy = waving(replace(CANARY, nodes=Share(count=2)))
    snapshot, now = build.fleet(4), NOW
    while {"n0", "n1"} - set(upgraded(snapshot)):
        snapshot, now = world.turn(world.apply(snapshot, decide(snapshot, policy, now).actions, now), now), now + 1
    assert snapshot.nodes["n1"].state in IN_PROGRESS
    pods = [replace(pod, ready=False) for pod in snapshot.pods["n1"]]
    snapshot = world.set_ready(world.with_pods(snapshot, "n1", pods), "n1", False)
    for _ in range(3000):
        snapshot, now = world.turn(world.apply(snapshot, decide(snapshot, policy, now).actions, now), now), now + 1
        snapshot = world.with_pods(snapshot, "n1", pods)
        assert started(snapshot) <= {"n0", "n1"}
    assert [snapshot.nodes[name].state for name in ("n0", "n1")] == [State.DONE, State.FAILED]
    assert hold(snapshot, policy, "n2", now) is Reason.WAVE_FAILED


def test_a_canary_that_breaks_after_it_was_done_holds_the_rest() -> None:
    snapshot, policy, done = canary_done()
    approved = said(policy, approved=Word(done + 1, "a", (NEW,)))
    pods = [replace(pod, ready=False) if pod.labels.get("app") == names.DRIVER_APP else pod for pod in snapshot.pods["n0"]]
    assert hold(world.with_pods(snapshot, "n0", pods), approved, "n1", done + 5) is Reason.WAVE_NOT_DONE


def test_a_pause_starts_no_soak_anew() -> None:
    snapshot, policy, done = canary_done(soak=3600.0)
    paused = replace(policy, auto_upgrade=False)
    snapshot = world.rollout(snapshot, paused, now=done + 60).end
    assert not snapshot.nodes["n0"].upgrade_label
    now = done + 600
    for _ in range(5):
        snapshot, now = world.apply(snapshot, decide(snapshot, policy, now).actions, now), now + 1
    assert decide(snapshot, policy, now).holds["n1"].until == done + 3600.0


def test_waves_that_are_renamed_or_taken_away_in_mid_rollout_change_nothing_about_what_is_done() -> None:
    snapshot, policy, done = canary_done()
    now = done + 60
    approved = said(policy, approved=Word(now, "a", (NEW,)))
    waves = policy.rollout.waves
    renamed = said(approved, waves=tuple(replace(wave, name="first") for wave in waves))
    assert hold(snapshot, renamed, "n1", now) is None
    assert hold(snapshot, said(policy, waves=()), "n1", now) is None
    wider = said(approved, waves=(replace(waves[0], nodes=Share(count=2)),))
    assert hold(snapshot, wider, "n1", now) is None, "it belongs to the first wave now"
    assert hold(snapshot, wider, "n2", now) is Reason.WAVE_NOT_DONE


def test_a_wave_bounds_how_many_of_it_are_out_within_what_the_rollout_allows() -> None:
    half = Wave("half", nodes=Share(count=4), max_unavailable=Share(count=2))
    end = world.rollout(build.fleet(8), waving(half))
    out = [len([1 for node in snapshot.nodes.values() if node.state in IN_PROGRESS]) for snapshot, _ in end.history]
    first = next(number for number, (snapshot, _) in enumerate(end.history) if {"n4", "n5", "n6", "n7"} & started(snapshot))
    assert max(out[:first]) == 2
    assert max(out[first:]) == 4
    assert upgraded(end) == sorted(end.end.nodes)
    assert any(plan.holds.get("n3") and plan.holds["n3"].reason is Reason.WAVE_LIMIT for _, plan in end.history)


@pytest.mark.parametrize(("start", "factor", "limits"), [
    (1, 2, [1, 2, 2, 4, 4, 4, 4, 8]), (2, 3, [2, 2, 6, 6, 6, 6, 6, 6, 18]), (1, 1, [1, 1, 1, 1]), (5, 1, [5, 5]),
])
def test_a_rollout_grows_with_every_set_that_is_done(start: int, factor: int, limits: list[int]) -> None:
    assert [Growth(start, factor).limit(done) for done in range(len(limits))] == limits


def test_a_rollout_starts_with_few_nodes_and_never_goes_beyond_its_limits() -> None:
    policy = waving(parallel=3, growth=Growth(1, 2))
    end = world.rollout(build.fleet(12), policy)
    seen: list[tuple[int, int]] = []
    for snapshot, _ in end.history:
        out = sum(node.state in IN_PROGRESS for node in snapshot.nodes.values())
        done = sum(node.state is State.DONE for name, node in snapshot.nodes.items() if name in upgraded(snapshot))
        seen.append((done, out))
    assert all(out <= min(3, Growth(1, 2).limit(done)) for done, out in seen)
    assert max(out for _, out in seen) == 3
    assert any(plan.holds.get("n5") and plan.holds["n5"].reason is Reason.GROWTH_LIMIT for _, plan in end.history)


def test_an_abort_starts_nobody_and_sends_those_back_whose_driver_is_not_touched() -> None:
    policy = waving(parallel=2)
    snapshot, now = build.fleet(4, gpu_pods={0: 1, 1: 1, 2: 1, 3: 1}), NOW
    while not any(node.unschedulable for node in snapshot.nodes.values()):
        snapshot, now = world.apply(snapshot, decide(snapshot, policy, now).actions, now), now + 1
    word = Word(now, "alice", (NEW,))
    end = world.rollout(snapshot, said(policy, aborted=word), now=now)
    assert upgraded(end) == []
    assert not any(node.unschedulable for node in end.end.nodes.values())
    assert {build.hold_of(end.plan, name).reason for name in end.end.nodes} == {Reason.ABORTED}
    resumed = said(policy, aborted=word)
    resumed = replace(resumed, rollout=replace(resumed.rollout, resumed_at=now + 5))
    assert len(upgraded(world.rollout(end.end, resumed, now=end.now + 10))) == 4
    other = world.rollout(world.retarget(end.end, "newer", digest="newer"), said(policy, aborted=word), now=end.now + 10)
    assert {node.state for node in other.end.nodes.values()} == {State.DONE}
