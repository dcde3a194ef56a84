"""How long a rollout still takes: never more than is known, and nothing where nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuward import names
from gpuward.crd.rollout_conversion import rollout_settings, typed_rollout
from gpuward.model.budgets import BudgetView
from gpuward.model.domains import DomainSettings
from gpuward.model.estimate import Estimate, joined, roughly
from gpuward.model.history import Ending, PastUpgrade, encode_history
from gpuward.model.notice import Notice, NoticeSettings, encode_notice
from gpuward.model.opportunities import OpportunisticSettings
from gpuward.model.reading import format_time
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Refusal
from gpuward.model.states import State
from gpuward.model.views import NodeView
from gpuward.model.waves import REST, RolloutWaves, Wave, WavePhase, WaveStatus
from gpuward.model.windows import WindowState
from gpuward.upgrade.decide import decide
from gpuward.upgrade.estimating import OVERDUE, Remaining, Samples, time_left, windows_ahead
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.waves import WaveGate, Waves
from tests import build
from tests.build import NOW, driver_pod, gpu_pod, node, policy, record, under_way, validator

SAMPLES = st.lists(st.floats(1, 10_000), min_size=1, max_size=20).map(lambda found: Samples(tuple(sorted(found))))
REMAINING = st.builds(
    Remaining, st.integers(0, 300), st.lists(st.floats(0, 12_000), max_size=12).map(tuple), st.integers(1, 12),
    st.floats(0, 5_000) | st.just(0.0))


def played(samples: Samples, remaining: Remaining) -> float:
    """Play it node by node: each that waits takes the slot that is free first."""
    slots = [samples.remaining(elapsed) or 0.0 for elapsed in remaining.elapsed]
    slots += [0.0] * (remaining.slots - len(slots))
    for _ in range(remaining.waiting):
        slots[slots.index(min(slots))] += samples.mean
    return max(slots)


@settings(deadline=None, derandomize=True)
@given(SAMPLES, REMAINING)
def test_it_is_what_comes_out_where_it_is_played(samples: Samples, remaining: Remaining) -> None:
    left = time_left(samples, remaining)
    if left is None:
        assert all(samples.remaining(elapsed) is None for elapsed in remaining.elapsed)
        overdue = [elapsed for elapsed in remaining.elapsed if elapsed > OVERDUE * samples.seconds[-1]]
        assert remaining.waiting == 0 or len(overdue) == len(remaining.elapsed) >= remaining.slots
        return
    again = remaining.later + samples.mean if remaining.later else 0.0
    assert left == pytest.approx(max(played(samples, remaining), again))


@settings(deadline=None, derandomize=True)
@given(SAMPLES, REMAINING)
def test_more_to_do_never_takes_less_and_more_at_once_never_more(samples: Samples, remaining: Remaining) -> None:
    left = time_left(samples, remaining)
    more = time_left(samples, msgspec.structs.replace(remaining, waiting=remaining.waiting + 1))
    assert left is None or (more is not None and more >= left - 1e-6)
    wider = time_left(samples, msgspec.structs.replace(remaining, slots=remaining.slots + 1))
    assert left is None or (wider is not None and wider <= left + 1e-6)


@given(SAMPLES, st.floats(0, 20_000))
def test_what_is_left_of_a_node_is_learned_from_those_that_took_longer(samples: Samples, elapsed: float) -> None:
    left = samples.remaining(elapsed)
    longest = samples.seconds[-1]
    assert (left is None) is (elapsed >= longest)
    assert left is None or 0 <= left <= longest - elapsed + 1e-6


def remembering(name: str, *seconds: float, to: str = "", state: State = State.DONE, **rest: Any) -> NodeView:
    """Build a node that remembers upgrades which took so long, the newest first."""
    history = [PastUpgrade(NOW - 10_000 * (number + 1), NOW - 9_000, to=to, spent=(0, 0, each, 0), **rest)
               for number, each in enumerate(seconds)]
    memory = {names.UPGRADE_HISTORY: encode_history(history) or ""}
    return node(name, state, remembers=record(state), annotations=memory)


def estimated(*nodes: NodeView, done: int = 0, parallel: int = 1, **rest: Any) -> Estimate | None:
    """Return what is said of nodes, the first of which have the new driver already, and the others wait."""
    pods = [pod for number, each in enumerate(nodes) for pod in (
        driver_pod(each.name, "560" if number < done else "550"), validator(each.name))]
    more = rest.pop("pods", ())
    assert isinstance(more, tuple)
    return decide(build.cluster(nodes, [*pods, *more]), policy(parallel=parallel, **rest), NOW).estimate


def test_five_nodes_are_enough_to_tell_by() -> None:
    own = [remembering(f"a{number}", 300.0, 9_000.0) for number in range(5)]
    waiting = [remembering(f"b{number}", 9_000.0, to="550") for number in range(6)]
    told = estimated(*own, *waiting, done=5)
    assert told == Estimate(1800.0, NOW, 5)
    assert str(told) == "about 30 min left, from 5 nodes"
    assert str(estimated(*own, *waiting, done=5, parallel=3)) == "about 10 min left, from 5 nodes"


def test_before_that_earlier_rollouts_count_too() -> None:
    own = [remembering(f"a{number}", 300.0) for number in range(2)]
    waiting = [remembering(f"b{number}", 600.0, to="550") for number in range(2)]
    told = estimated(*own, *waiting, done=2)
    assert told == Estimate(900.0, NOW, 4, earlier=True)
    assert str(told) == "about 15 min left, from 4 upgrades, of earlier rollouts too"


@pytest.mark.parametrize("rest", [{"ending": Ending.FAILED}, {"ending": Ending.BACK}, {"failures": 1}], ids=str)
def test_what_did_not_go_through_tells_nothing(rest: dict[str, Any]) -> None:
    told = estimated(remembering("a0", 300.0, to="550", **rest))
    assert told is not None
    assert told.is_silent
    assert (str(told), told.as_json()) == ("", None)


def test_a_fleet_that_is_done_has_no_time_left() -> None:
    assert estimated(remembering("a0", 300.0), done=1) is None


def test_a_node_that_is_held_without_an_end_makes_it_unknown() -> None:
    holder = build.pod("b0", "holder", holds="hostPath /dev/nvidia0", owner="ReplicaSet")
    told = estimated(remembering("a0", 300.0), remembering("b0", 300.0, to="550"), done=1, pods=(holder,))
    assert str(told) == "time left unknown: 1 node needs somebody (HeldDevices)"
    assert told is not None
    assert (told.as_json() or {})["secondsLeft"] is None


def test_a_node_under_way_has_its_time_behind_it() -> None:
    busy = under_way(State.POD_RESTART_REQUIRED, name="b0", since=NOW - 100)
    told = estimated(remembering("a0", 300.0), busy, done=1, pods=())
    assert told is not None
    assert told.left == pytest.approx(200.0)


def test_what_takes_longer_than_any_before_is_not_known() -> None:
    told = estimated(remembering("a0", 300.0), under_way(State.POD_RESTART_REQUIRED, name="b0", since=NOW - 400), done=1)
    assert str(told) == "time left unknown: what is under way has taken longer than any node before"


@pytest.mark.parametrize(("since", "parallel", "known"), [(500, 1, True), (700, 1, False), (700, 2, True)])
def test_a_node_that_holds_the_only_slot_for_far_longer_than_any_makes_it_unknown_for_those_that_wait(
        since: float, parallel: int, known: bool) -> None:
    stuck = under_way(State.POD_RESTART_REQUIRED, name="b0", since=NOW - since)
    told = estimated(remembering("a0", 300.0), stuck, remembering("c0", 300.0, to="550"), done=1, parallel=parallel)
    assert told is not None
    assert str(told) == ("about 5 min left, from 2 upgrades, of earlier rollouts too" if known
                         else "time left unknown: what is under way has taken longer than any node before")


def test_each_reason_that_holds_nodes_is_named_with_its_nodes() -> None:
    holder = build.pod("b0", "holder", holds="hostPath /dev/nvidia0", owner="ReplicaSet")
    silent = msgspec.structs.replace(remembering("c0", 300.0, to="550"), ready=False)
    told = estimated(remembering("a0", 300.0), remembering("b0", 300.0, to="550"), silent, done=1, pods=(holder,))
    assert str(told) == "time left unknown: 2 nodes need somebody (1 HeldDevices, 1 NodeNotReady)"


def test_jobs_that_may_run_for_ever_make_it_unknown() -> None:
    busy = under_way(State.WAIT_FOR_JOBS_REQUIRED, name="b0")
    rules = policy(wait_for="app=job")
    job = gpu_pod("b0", "job", labels={"app": "job"})
    pods = [driver_pod("a0", "560"), validator("a0"), driver_pod("b0"), validator("b0"), job]
    told = decide(build.cluster([remembering("a0", 300.0), busy], pods), rules, NOW).estimate
    assert str(told) == "time left unknown: 1 node is waiting (JobsRunning)"


@pytest.mark.parametrize("timeout", [0, 600])
def test_pods_that_may_not_go_or_are_kept_make_it_unknown_whatever_the_deadline(timeout: int) -> None:
    busy = under_way(State.POD_DELETION_REQUIRED, name="b0", since=NOW - 4)
    others = [driver_pod("a0", "560"), validator("a0"), driver_pod("b0"), validator("b0")]
    user = gpu_pod("b0")
    kept = msgspec.structs.replace(user, deleting=True, kept_by_finalizers=("example.com/keep",))
    for pod, refusals, reason in ((user, {user.uid: Refusal(NOW, 3, "no budget")}, "EvictionRefused"), (kept, {}, "Evicting")):
        fleet = build.cluster([remembering("a0", 300.0), busy], [*others, pod], refusals=refusals)
        told = decide(fleet, policy(timeout=timeout), NOW).estimate
        assert str(told).startswith("time left unknown: 1 node is ")
        assert str(told).endswith(f"({reason})")


@pytest.mark.parametrize(("seconds", "told"), [
    (0, "1 min"), (89, "1 min"), (95, "2 min"), (1500, "25 min"), (2400, "40 min"), (5400, "90 min"), (7200, "2 h"),
    (9000, "2.5 h"), (90_000, "25 h"), (259_200, "3 days")])
def test_it_is_rounded_as_people_estimate(seconds: float, told: str) -> None:
    assert roughly(seconds) == told


def test_rollouts_side_by_side_are_done_when_the_last_is() -> None:
    one, other = Estimate(100.0, 1.0, 5), Estimate(300.0, 1.0, 7, earlier=True)
    unknown, silent = Estimate(unknown="why"), Estimate()
    assert joined([None, one, other]) == Estimate(300.0, 1.0, 12, earlier=True)
    assert joined([one, unknown]) == unknown
    assert joined([one, silent]) == silent
    assert joined([None]) is None


def test_what_a_budget_keeps_from_going_on_beside_others_goes_on_after_them() -> None:
    """With room for four at once, but for the budget, which lets no pod of a second node go as yet."""
    nodes = [remembering("a0", 300.0), under_way(State.POD_RESTART_REQUIRED, name="b0", since=NOW - 100),
             remembering("c0", 300.0, to="550"), remembering("d0", 300.0, to="550")]
    pods = [driver_pod("a0", "560"), validator("a0"), *(pod for name in ("b0", "c0", "d0") for pod in (
        driver_pod(name), validator(name))), gpu_pod("c0", "web-1", ready=True, phase="Running"),
        gpu_pod("d0", "web-2", ready=True, phase="Running")]
    tight = BudgetView("default", "pdb", "uid-pdb", allowed=0, healthy=2, desired=2, expected=3)
    snapshot = msgspec.structs.replace(build.cluster(nodes, pods), budgets=(tight,))
    plan = decide(snapshot, policy(parallel=4), NOW)
    assert {str(plan.nodes[name].hold.reason) for name in ("c0", "d0")} == {"BudgetUsedUp"}  # type: ignore[union-attr]
    assert plan.estimate is not None
    assert plan.estimate.left == pytest.approx(800.0)
    alone = msgspec.structs.replace(snapshot, nodes={name: each for name, each in snapshot.nodes.items() if name != "b0"})
    assert str(decide(alone, policy(parallel=4), NOW).estimate) == "time left unknown: 2 nodes are waiting (BudgetUsedUp)"


def test_a_node_that_waits_for_idleness_makes_it_unknown_and_is_not_called_held() -> None:
    nodes = [remembering("a0", 300.0), remembering("b0", 300.0, to="550")]
    pods = [driver_pod("a0", "560"), validator("a0"), driver_pod("b0"), validator("b0"),
            gpu_pod("b0", "job", ready=True, phase="Running")]
    rules = policy(rollout=RolloutSettings(opportunistic=OpportunisticSettings(600.0, 86_400.0)))
    told = decide(build.cluster(nodes, pods), rules, NOW).estimate
    assert str(told) == "time left unknown: 1 node is waiting (IdleAwaited)"


def test_what_a_domain_keeps_from_going_on_beside_others_goes_on_after_them() -> None:
    racked = {"rack": "a"}
    busy = under_way(State.POD_RESTART_REQUIRED, name="b0", since=NOW - 100)
    waiting = [msgspec.structs.replace(one, labels={**one.labels, **racked}) for one in (
        busy, remembering("c0", 300.0, to="550"), remembering("d0", 300.0, to="550"))]
    pods = [driver_pod("a0", "560"), validator("a0"), *(pod for name in ("b0", "c0", "d0") for pod in (
        driver_pod(name), validator(name)))]
    rules = policy(parallel=4, rollout=RolloutSettings(domains=DomainSettings("rack")))
    plan = decide(build.cluster([remembering("a0", 300.0), *waiting], pods), rules, NOW)
    assert {str(plan.nodes[name].hold.reason) for name in ("c0", "d0")} == {"DomainLimit"}  # type: ignore[union-attr]
    assert plan.estimate is not None
    assert plan.estimate.left == pytest.approx(800.0)


@pytest.mark.parametrize(("minutes", "told"), [
    (90, "about 60 min left, from 5 nodes; that is 30 min before finishBy"),
    (60, "about 60 min left, from 5 nodes; that is 1 min before finishBy"),
    (40, "about 60 min left, from 5 nodes; that is 20 min after finishBy: 2 nodes at once would do"),
    (11, "about 60 min left, from 5 nodes; that is 50 min after finishBy: 6 nodes at once would do"),
    (5, "about 60 min left, from 5 nodes; that is 55 min after finishBy: no number of nodes at once would do"),
    (-5, "about 60 min left, from 5 nodes; that is 65 min after finishBy: no number of nodes at once would do")])
def test_it_says_whether_it_is_done_when_it_should_be(minutes: float, told: str) -> None:
    """Six nodes wait and take ten minutes each, one after the other."""
    own = [remembering(f"a{number}", 600.0) for number in range(5)]
    waiting = [remembering(f"b{number}", 600.0, to="550") for number in range(6)]
    found = estimated(*own, *waiting, done=5, rollout=RolloutSettings(finish_by=NOW + 60 * minutes))
    assert found is not None
    assert str(found) == told
    assert (found.as_json() or {})["slackSeconds"] == 60 * minutes - 3600


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 6), st.floats(1, 30_000))
def test_as_many_nodes_as_it_says_would_do_and_fewer_would_not(waiting: int, parallel: int, seconds: float) -> None:
    own = [remembering(f"a{number}", 600.0, 300.0) for number in range(5)]
    late = [remembering(f"b{number}", 600.0, to="550") for number in range(waiting)]
    def left(slots: int) -> Estimate:
        found = estimated(*own, *late, done=5, parallel=slots, rollout=RolloutSettings(finish_by=NOW + seconds))
        assert found is not None
        return found

    wanted = left(parallel).would_do
    if wanted is None:
        assert left(parallel).left <= seconds
    elif wanted == 0:
        assert left(waiting).left > seconds
    else:
        assert left(wanted).left <= seconds < left(wanted - 1).left
        assert wanted > parallel


def test_more_nodes_at_once_are_not_said_to_help_where_something_else_lets_none_go() -> None:
    racked = {"rack": "a"}
    busy = under_way(State.POD_RESTART_REQUIRED, name="b0", since=NOW - 100)
    waiting = [msgspec.structs.replace(one, labels={**one.labels, **racked}) for one in (
        busy, remembering("c0", 300.0, to="550"))]
    pods = [driver_pod("a0", "560"), validator("a0"), *(pod for name in ("b0", "c0") for pod in (
        driver_pod(name), validator(name)))]
    rules = policy(parallel=4, rollout=RolloutSettings(domains=DomainSettings("rack"), finish_by=NOW + 60))
    told = decide(build.cluster([remembering("a0", 300.0), *waiting], pods), rules, NOW).estimate
    assert str(told) == "about 8 min left, from 2 upgrades, of earlier rollouts too; that is 7 min after finishBy"


def shut_until(hours: int, **settings: Any) -> RolloutSettings:
    opens = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=hours)
    body = {"apiVersion": "gpuward.io/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "r"},
            "spec": {"windows": [{"schedule": f"{opens.minute} {opens.hour} * * *", "duration": "30m"}]}}
    policy, problems = typed_rollout(body)
    assert policy is not None
    assert problems == []
    return msgspec.structs.replace(rollout_settings(policy), **settings)


@pytest.mark.parametrize("remembers", [True, False])
def test_a_window_that_is_shut_has_an_end_that_is_known(remembers: bool) -> None:
    nodes = [remembering("a0", 300.0), remembering("b0", 300.0, to="550")] if remembers else [
        remembering("a0", 300.0, to="550", failures=1), remembering("b0", 300.0, to="550", failures=1)]
    opens = (NOW // 60 + 120) * 60
    words = f"not done before {datetime.fromtimestamp(opens, UTC):%Y-%m-%d %H:%M} (UTC), when the window opens"
    told = estimated(*nodes, done=1, rollout=shut_until(2))
    assert str(told) == f"time left unknown: 1 node is waiting (WindowShut); {words}"
    told = estimated(*nodes, done=1, rollout=shut_until(2, finish_by=opens - 3600.0))
    assert str(told).endswith(f"{words}; that is 60 min after finishBy at least")
    assert told is not None
    assert (told.as_json() or {})["notBefore"] == format_time(opens)


def test_a_node_whose_state_label_is_garbage_is_counted_with_those_that_need_somebody() -> None:
    holder = build.pod("b0", "holder", holds="hostPath /dev/nvidia0", owner="ReplicaSet")
    garbage = remembering("c0", 300.0, to="550")
    garbage = msgspec.structs.replace(garbage, labels={**garbage.labels, names.UPGRADE_STATE: "foo"})
    told = estimated(remembering("a0", 300.0), remembering("b0", 300.0, to="550"), garbage, done=1, pods=(holder,))
    assert str(told) == "time left unknown: 2 nodes need somebody (1 HeldDevices, 1 UnknownState)"


def test_machines_that_are_away_are_left_out_of_what_the_others_take() -> None:
    away = [msgspec.structs.replace(remembering(f"c{number}", 300.0, to="550"), ready=False) for number in range(2)]
    told = estimated(remembering("a0", 300.0), remembering("b0", 300.0, to="550"), *away, done=1, unavailable=3)
    assert str(told) == "about 5 min left, from 4 upgrades, of earlier rollouts too, without 2 nodes that are not Ready"
    assert told is not None
    assert (told.as_json() or {})["withoutNodes"] == 2
    alone = estimated(remembering("a0", 300.0), away[0], done=1)
    assert str(alone) == "time left unknown: 1 node needs somebody (NodeNotReady)", "nothing goes on"


def test_a_machine_that_is_away_and_under_way_keeps_its_place() -> None:
    busy = msgspec.structs.replace(under_way(State.POD_DELETION_REQUIRED, name="b0", since=NOW - 100), ready=False)
    nodes = [remembering("a0", 300.0), busy, remembering("c0", 300.0, to="550")]
    pods = [driver_pod("a0", "560"), validator("a0"), *(pod for at in ("b0", "c0") for pod in (driver_pod(at), validator(at)))]
    plan = decide(build.cluster(nodes, pods), policy(parallel=1), NOW)
    assert str(plan.estimate) == "time left unknown: 1 node needs somebody (NodeNotReady)"


def test_a_skipped_node_of_a_wave_does_not_wait_for_a_window() -> None:
    """All nodes are in a wave with a window of its own; that of the rollout is of no matter to any."""
    gate = WaveGate(Wave("w"), frozenset({"a0", "b0", "c0"}), done=1, total=2)
    waves = (WaveStatus("w", WavePhase.GOES, 2, 1), WaveStatus(REST, WavePhase.DONE, 0, 0))
    for rest, told in (waves[1], [0]), (WaveStatus(REST, WavePhase.WAITS, 1, 0), [0, 1]):
        told_waves = (RolloutWaves("", (), (waves[0], rest)),)
        seen = Waves({"a0": 0, "b0": 0, "c0": 0}, (gate,), told_waves)
        of_wave, of_rollout = WindowState(changes=1.0), WindowState(changes=2.0)
        fleet = Fleet(wave_windows={0: of_wave}, waves=seen, windows=of_rollout)
        assert list(windows_ahead(fleet)) == [(of_wave, of_rollout)[each] for each in told]


def test_a_time_to_be_done_by_that_has_passed_is_said_whatever_else_is_known() -> None:
    late = RolloutSettings(finish_by=NOW - 7200.0)
    assert str(estimated(remembering("a0", 300.0, to="550", failures=1), rollout=late)) == "finishBy was 2 h ago"
    silent = msgspec.structs.replace(remembering("c0", 300.0, to="550"), ready=False)
    held = estimated(remembering("a0", 300.0), silent, done=1, rollout=late)
    assert str(held) == "time left unknown: 1 node needs somebody (NodeNotReady); finishBy was 2 h ago"


def test_notice_is_counted_for_nodes_with_pods_to_tell_and_those_that_have_it_keep_their_slots() -> None:
    notice = RolloutSettings(notice=NoticeSettings(600.0))
    own = [remembering(f"a{number}", 300.0) for number in range(5)]
    waiting = [remembering(f"b{number}", 9_000.0, to="550") for number in range(3)]
    assert estimated(*own, *waiting, done=5, rollout=notice) == Estimate(900.0, NOW, 5), "no pod is told"
    busy = tuple(gpu_pod(f"b{number}") for number in range(2))
    assert estimated(*own, *waiting, done=5, rollout=notice, pods=busy) == Estimate(900.0 + 1200.0, NOW, 5)
    given = encode_notice(Notice("3f0c2a9b", "560", NOW - 400, NOW + 200))
    told = msgspec.structs.replace(waiting[0], annotations={**waiting[0].annotations, names.NOTICE: given},
                                   labels={**waiting[0].labels, names.UPGRADE_STATE: str(State.UPGRADE_REQUIRED)})
    found = estimated(*own, told, *waiting[1:], done=5, rollout=notice, pods=busy)
    assert found == Estimate(200.0 + 300.0 + 2 * 300.0 + 600.0, NOW, 5)
