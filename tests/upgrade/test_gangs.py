"""Gangs on paper: nodes with pods of one start together or not at all, and it is not made to leave again for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import GrantNodes
from gpuward.model.budgets import BudgetView
from gpuward.model.domains import DomainMode, DomainSettings
from gpuward.model.gangs import GangAwaited, GangSettings, GangSpared, LargeGang
from gpuward.model.notice import ALWAYS, NoticeSettings
from gpuward.model.opportunities import OpportunisticSettings
from gpuward.model.plan import Hold, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.record import Failure, decode_record, encode_record
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import IN_PROGRESS, State
from gpuward.model.views import PodView
from gpuward.model.waits import Limit
from gpuward.upgrade import gang_sets
from gpuward.upgrade.decide import decide
from gpuward.upgrade.fleet import Candidate, Fleet
from gpuward.upgrade.fleet_gates import SETTLING
from gpuward.upgrade.remedies import remedies
from tests import build
from tests.upgrade import world

replace = msgspec.structs.replace
DAY = 24 * 3600.0
HOUR = 3600.0


def rules(parallel: int = 2, until: float = DAY, unavailable: str | int | None = None, **rollout: Any) -> UpgradePolicy:
    return build.policy(parallel=parallel, unavailable=unavailable,
                        rollout=RolloutSettings(gangs=GangSettings(until), **rollout))


def member(at: str, gang: str, created: float = build.LONG_AGO, **rest: Any) -> PodView:
    return build.gpu_pod(at, f"{gang}-{at}", gang=f"Job ml/{gang}" if gang else "", created=created, **rest)


def running(gangs: Mapping[str, str], count: int = 4, created: float = build.LONG_AGO, **rest: Any) -> Snapshot:
    """Return a fleet that waits, with pods of the gangs on each node, by their letters."""
    found = build.fleet(count, state=State.UPGRADE_REQUIRED, **rest)
    for node, letters in gangs.items():
        pods = [member(node, letter, created) for letter in letters]
        found = world.with_pods(found, node, [*found.pods.get(node, ()), *pods])
    return found


def started(plan: Plan) -> set[str]:
    return {name for name, status in plan.nodes.items() if status.state in IN_PROGRESS}


def starts(snapshot: Snapshot, policy: UpgradePolicy, now: float = build.NOW) -> set[str]:
    return started(decide(snapshot, policy, now))


def with_record(snapshot: Snapshot, name: str, **fields: Any) -> Snapshot:
    node = snapshot.nodes[name]
    record = replace(node.record or build.seen(State.UPGRADE_REQUIRED, target="550"), **fields)
    changed = replace(node, record=record, annotations={**node.annotations, names.UPGRADE_RECORD: encode_record(record)})
    return replace(snapshot, nodes={**snapshot.nodes, name: changed})


def test_nodes_of_a_gang_start_together_after_those_that_are_alone() -> None:
    fleet = running({"n0": "a", "n1": "b", "n2": "a"}, 3)
    assert starts(fleet, rules(1)) == {"n1"}
    assert starts(fleet, rules(2)) == {"n1"}
    assert starts(fleet, rules(3)) == {"n0", "n1", "n2"}


def test_a_set_for_which_there_is_no_room_yet_waits_and_says_for_whom() -> None:
    plan = decide(running({"n0": "a", "n1": "b", "n2": "a"}, 3), rules(2), build.NOW)
    hold = plan.holds["n0"]
    assert hold.what == GangAwaited("Job ml/a", ("n2",), 1, "n2", Reason.PARALLEL_LIMIT)
    assert plan.nodes["n0"].turn == 1
    assert plan.wake_at is not None


def test_without_the_setting_nodes_start_one_by_one() -> None:
    fleet = running({"n0": "a", "n1": "b", "n2": "a"}, 3)
    assert starts(fleet, build.policy(parallel=2)) == {"n0", "n1"}


@pytest.mark.parametrize("unavailable", [2, "50%"])
def test_max_unavailable_bounds_a_set_too(unavailable: str | int) -> None:
    fleet = running({"n0": "a", "n1": "b", "n2": "a"})
    assert starts(fleet, rules(0, unavailable=unavailable)) == {"n1", "n3"}
    assert starts(fleet, rules(0, unavailable="100%")) == {"n0", "n1", "n2", "n3"}


def test_a_gang_larger_than_a_limit_goes_in_parts_and_that_is_told() -> None:
    plan = decide(running({"n0": "a", "n1": "a", "n2": "a"}, 3), rules(2), build.NOW)
    assert started(plan) == {"n0", "n1"}
    what = plan.holds["n2"].what
    assert isinstance(what, Limit)
    assert what.gang == LargeGang("Job ml/a", 3)


def test_nodes_that_gangs_link_start_together() -> None:
    fleet = running({"n0": "ab", "n1": "a", "n2": "b", "n3": "c"})
    assert starts(fleet, rules(3)) == {"n3"}
    assert starts(fleet, rules(4)) == {"n0", "n1", "n2", "n3"}


def test_a_node_that_something_else_holds_is_not_waited_for() -> None:
    fleet = running({"n0": "a", "n1": "a"}, 2)
    skipped = replace(fleet.nodes["n1"], labels={**fleet.nodes["n1"].labels, names.UPGRADE_SKIP: "true"})
    fleet = replace(fleet, nodes={**fleet.nodes, "n1": skipped})
    assert starts(fleet, rules(2)) == {"n0"}


def test_a_node_whose_driver_was_made_a_second_later_is_waited_for() -> None:
    """As where precompiled drivers for two kernels are written one after the other."""
    fleet = running({"n0": "a", "n1": "a"}, 2)
    made = tuple(replace(each, created=build.NOW - SETTLING) for each in fleet.revisions)
    later = tuple(replace(each, owner_uid="uid-later", created=each.created + 1) for each in made)
    ours = build.driver_pod("n1")
    assert ours.owner is not None
    others = [pod for pod in fleet.pods["n1"] if pod.name != ours.name]
    moved = replace(ours, owner=replace(ours.owner, uid="uid-later"))
    fleet = replace(world.with_pods(fleet, "n1", [moved, *others]), revisions=(*made, *later),
                    daemonsets=(*fleet.daemonsets, build.daemonset(name="later", uid="uid-later")))
    plan = decide(fleet, rules(2), build.NOW)
    assert (started(plan), plan.wake_at) == (set(), build.NOW + 1)
    assert plan.holds["n0"].what == GangAwaited("Job ml/a", ("n1",), 1, "n1", Reason.TEMPLATE_SETTLING)
    assert starts(fleet, rules(2), build.NOW + 1) == {"n0", "n1"}


def test_a_node_about_which_nothing_can_be_decided_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(node: Candidate, fleet: Fleet, policy: UpgradePolicy) -> Hold | None:
        if node.node.name == "n1":
            raise ZeroDivisionError("planted")
        return None

    monkeypatch.setattr(gang_sets, "eviction_budget", fails)
    assert starts(running({"n0": "a", "n1": "a"}), rules(parallel=3)) == {"n0", "n2", "n3"}


def test_where_nodes_that_are_broken_take_the_room_a_set_goes_in_parts() -> None:
    fleet = running({"n0": "a", "n1": "a"}, 3)
    fleet = replace(fleet, nodes={**fleet.nodes, "n2": replace(fleet.nodes["n2"], ready=False)})
    assert starts(fleet, rules(0, unavailable=2)) == {"n0"}


def test_a_set_waits_no_longer_for_nodes_that_are_under_way_than_a_gang_is_spared() -> None:
    fleet = running({"n0": "a", "n1": "a"}, 3)
    fleet = replace(fleet, nodes={**fleet.nodes, "n2": build.under_way(State.DRAIN_REQUIRED, name="n2")})
    plan = decide(fleet, rules(2, until=HOUR), build.NOW)
    assert started(plan) == {"n2"}
    assert plan.holds["n0"].until == build.ADMITTED + HOUR
    assert starts(fleet, rules(2, until=30.0)) == {"n0", "n2"}


def go_on(snapshot: Snapshot, policy: UpgradePolicy, now: float = build.NOW) -> Snapshot:
    return world.apply(snapshot, decide(snapshot, policy, now).actions, now)


def test_the_rest_of_a_gang_that_is_leaving_follows_before_others() -> None:
    fleet = go_on(running({"n1": "a", "n2": "a", "n3": "a"}), rules(1))
    assert {name for name, node in fleet.nodes.items() if node.state in IN_PROGRESS} == {"n0"}
    parts = running({"n1": "a", "n2": "a", "n3": "a"})
    parts = replace(parts, nodes={name: node for name, node in parts.nodes.items() if name != "n0"})
    begun = go_on(parts, rules(1))
    idle = build.fleet(1, state=State.UPGRADE_REQUIRED)
    joined = world.with_pods(replace(begun, nodes={**begun.nodes, **idle.nodes}), "n0", idle.pods["n0"])
    assert starts(joined, rules(2)) == {"n1", "n2"}


def left_and_back(**rest: Any) -> Snapshot:
    """Return a fleet in which gang a left n0, which is done since, and has come to n1."""
    found = build.fleet(3, state=State.UPGRADE_REQUIRED)
    done = build.record(State.DONE, target="560", started=build.NOW - HOUR, since=build.NOW - HOUR + 300,
                        gangs=(("Job ml/a", build.NOW - HOUR),), **rest)
    nodes = {**found.nodes, "n0": build.node("n0", State.DONE, remembers=done)}
    found = replace(found, nodes=nodes)
    found = world.with_pods(found, "n0", [build.driver_pod("n0", "560"), build.validator("n0")])
    return world.with_pods(found, "n1", [*found.pods["n1"], member("n1", "a", build.NOW - HOUR + 60)])


def test_a_gang_that_had_to_leave_is_spared_where_it_has_come_to() -> None:
    fleet = left_and_back()
    plan = decide(fleet, rules(2), build.NOW)
    assert started(plan) == {"n2"}
    hold = plan.holds["n1"]
    assert isinstance(hold.what, GangSpared)
    assert (hold.what.gang, hold.what.node, hold.until) == ("Job ml/a", "n0", build.NOW - HOUR + DAY)
    assert plan.wake_at is not None
    assert plan.wake_at <= build.NOW - HOUR + DAY
    assert starts(fleet, rules(2), build.NOW - HOUR + DAY) == {"n1", "n2"}
    assert starts(fleet, rules(2, until=0.0)) == {"n1", "n2"}
    assert starts(fleet, build.policy(parallel=2)) == {"n1", "n2"}


def test_a_gang_is_spared_where_it_came_between_two_nodes_that_it_had_to_leave() -> None:
    fleet, later = left_and_back(), build.NOW - HOUR + 120
    done = build.record(State.DONE, target="560", started=later, since=later + 300, gangs=(("Job ml/a", later),))
    fleet = replace(fleet, nodes={**fleet.nodes, "n3": build.node("n3", State.DONE, remembers=done)})
    fleet = world.with_pods(fleet, "n3", [build.driver_pod("n3", "560"), build.validator("n3")])
    plan = decide(fleet, rules(2), build.NOW)
    assert started(plan) == {"n2"}
    hold = plan.holds["n1"]
    assert isinstance(hold.what, GangSpared)
    assert (hold.what.node, hold.until) == ("n0", build.NOW - HOUR + DAY)
    assert starts(fleet, rules(2), build.NOW - HOUR + DAY) == {"n1", "n2"}


def test_for_another_driver_the_gang_may_leave_once_more() -> None:
    fleet = with_record(left_and_back(), "n0", target="555")
    assert "n1" in starts(fleet, rules(2))


def test_pods_that_were_there_before_are_no_gang_that_came_back() -> None:
    fleet = left_and_back()
    older = [replace(pod, created=build.LONG_AGO) if pod.gang else pod for pod in fleet.pods["n1"]]
    fleet = world.with_pods(fleet, "n1", older)
    assert starts(fleet, rules(1)) == {"n1"}


def test_a_gang_that_ended_holds_nothing() -> None:
    fleet = left_and_back()
    fleet = world.with_pods(fleet, "n1", [replace(pod, phase="Succeeded") if pod.gang else pod for pod in fleet.pods["n1"]])
    assert "n1" in starts(fleet, rules(2))


def test_a_node_that_somebody_asks_for_starts_all_the_same() -> None:
    fleet = left_and_back()
    asked = replace(fleet.nodes["n1"], annotations={**fleet.nodes["n1"].annotations, names.UPGRADE_REQUESTED: "true"})
    assert "n1" in starts(replace(fleet, nodes={**fleet.nodes, "n1": asked}), rules(2))
    alone = running({"n0": "a", "n1": "a"}, 2)
    asked = replace(alone.nodes["n0"], annotations={**alone.nodes["n0"].annotations, names.UPGRADE_REQUESTED: "true"})
    assert starts(replace(alone, nodes={**alone.nodes, "n0": asked}), rules(1)) == {"n0"}


def test_a_node_that_somebody_asks_for_takes_the_rest_of_its_gang_along() -> None:
    fleet = running({"n0": "a", "n1": "a"}, 3)
    asked = replace(fleet.nodes["n0"], annotations={**fleet.nodes["n0"].annotations, names.UPGRADE_REQUESTED: "true"})
    fleet = replace(fleet, nodes={**fleet.nodes, "n0": asked})
    fleet = with_record(fleet, "n2", target="560", failure=Failure(State.DRAIN_REQUIRED, "", build.NOW - HOUR))
    assert starts(fleet, rules(2)) == {"n0", "n1"}


def test_a_node_that_a_gang_is_leaving_waits_for_none_to_which_it_has_come_back() -> None:
    fleet = running({"n0": "a", "n1": "a", "n2": "a", "n3": "a"})
    fleet = replace(fleet, nodes={**fleet.nodes, "n3": build.under_way(State.DRAIN_REQUIRED, name="n3")})
    fleet = with_record(fleet, "n3", gangs=(("Job ml/a", build.ADMITTED),))
    back = [replace(pod, created=build.NOW) if pod.gang else pod for pod in fleet.pods["n1"]]
    fleet = world.with_pods(fleet, "n1", back)
    assert started(decide(fleet, rules(2), build.NOW)) == {"n0", "n3"}


def test_a_gang_larger_than_the_limits_is_not_spared_between_its_parts() -> None:
    fleet = left_and_back()
    fleet = world.with_pods(fleet, "n2", [*fleet.pods["n2"], member("n2", "a", build.NOW - HOUR + 60)])
    assert starts(fleet, rules(1)) == {"n1"}


def test_what_would_help_a_node_that_is_spared_is_told() -> None:
    found = remedies(left_and_back(), rules(2), build.NOW, "n1")
    assert [remedy.do for remedy in found] == ["upgrade this node now", "take gangs from the RolloutPolicy"]


def test_a_node_remembers_the_gangs_that_had_to_leave_it() -> None:
    fleet = go_on(running({"n0": "ab"}, 1), rules(1))
    record = fleet.nodes["n0"].record
    assert record is not None
    assert dict(record.gangs) == {"Job ml/a": build.NOW, "Job ml/b": build.NOW}
    assert decode_record(encode_record(record)).gangs == record.gangs
    without = go_on(running({"n0": "ab"}, 1), build.policy(parallel=1)).nodes["n0"].record
    assert without is not None
    assert without.gangs == ()


def test_a_gang_that_never_went_had_not_to_leave() -> None:
    fleet = with_record(running({"n0": "a", "n1": "a"}, 2), "n0", target="560", started=build.NOW - HOUR,
                        gangs=(("Job ml/a", build.NOW - HOUR),))
    assert starts(fleet, rules(2)) == {"n0", "n1"}
    assert starts(fleet, rules(1)) == {"n0"}


def test_notice_is_given_together_and_all_start_when_the_last_one_is_over() -> None:
    policy = rules(2, notice=NoticeSettings(600.0))
    fleet = running({"n0": "a", "n1": "a", "n2": "b"}, 3)
    fleet = replace(fleet, nodes={name: node for name, node in fleet.nodes.items() if name != "n2"})
    fleet = go_on(fleet, policy)
    assert all(names.NOTICE in node.annotations for node in fleet.nodes.values())
    ids = {name: msgspec.json.decode(node.annotations[names.NOTICE])["id"] for name, node in fleet.nodes.items()}
    answered = [replace(pod, acknowledged=ids["n0"]) if pod.gang else pod for pod in fleet.pods["n0"]]
    fleet = world.with_pods(fleet, "n0", answered)
    plan = decide(fleet, policy, build.NOW + 10)
    assert started(plan) == set()
    what = plan.holds["n0"].what
    assert isinstance(what, GangAwaited)
    assert what.why is Reason.NOTICE_GIVEN
    assert starts(fleet, policy, build.NOW + 601) == {"n0", "n1"}


@pytest.mark.parametrize("agreed", ["n0", "n1"])
def test_a_node_that_needs_no_notice_starts_when_that_of_the_others_is_over(agreed: str) -> None:
    policy = rules(2, notice=NoticeSettings(600.0))
    fleet = running({"n0": "a", "n1": "a"}, 2)
    fleet = world.with_pods(fleet, agreed, [replace(pod, acknowledged=ALWAYS) if pod.gang else pod for pod in fleet.pods[agreed]])
    idle = build.fleet(3, state=State.UPGRADE_REQUIRED)
    fleet = go_on(fleet, policy)
    fleet = replace(idle, nodes={**idle.nodes, **fleet.nodes}, pods={**idle.pods, **fleet.pods})
    plan = decide(fleet, policy, build.NOW + 10)
    assert started(plan) == set()
    assert {name: hold.reason for name, hold in plan.holds.items()} == {
        "n0": Reason.NOTICE_GIVEN, "n1": Reason.NOTICE_GIVEN, "n2": Reason.PARALLEL_LIMIT} | {agreed: Reason.GANG_AWAITED}
    assert starts(fleet, policy, build.NOW + 601) == {"n0", "n1"}


def first_start(snapshot: Snapshot, policy: UpgradePolicy, now: float, until: float) -> tuple[float, set[str]]:
    """Return when nodes start first, and which."""
    while now <= until:
        plan = decide(snapshot, policy, now)
        if started(plan):
            return now, started(plan)
        snapshot, now = world.apply(snapshot, plan.actions, now), now + 60
    return now, set()


def test_a_place_that_is_kept_for_a_notice_is_in_the_way_of_no_node_of_the_same_gang() -> None:
    policy = rules(3, notice=NoticeSettings(600.0), domains=DomainSettings("rack", DomainMode.SPREAD, 1))
    fleet = running({"n0": "a", "n1": "a", "n2": "a"}, 3)
    racks = {"n0": "x", "n1": "y", "n2": "x"}
    fleet = replace(fleet, nodes={name: replace(node, labels={**node.labels, "rack": racks[name]})
                                  for name, node in fleet.nodes.items()})
    fleet = world.with_pods(fleet, "n0", [replace(pod, acknowledged=ALWAYS) if pod.gang else pod for pod in fleet.pods["n0"]])
    assert first_start(fleet, policy, build.NOW, build.NOW + DAY) == (build.NOW, {"n0"})


def test_notices_given_one_after_the_other_do_not_wait_for_each_other_for_ever() -> None:
    policy = rules(2, notice=NoticeSettings(2 * HOUR))
    fleet = go_on(running({"n0": "a", "n1": "b"}, 2), policy)
    late = build.NOW + 65 * 60
    fleet = replace(fleet, nodes={**fleet.nodes, "n1": replace(fleet.nodes["n1"], annotations={
        key: value for key, value in fleet.nodes["n1"].annotations.items() if key != names.NOTICE})})
    fleet = world.with_pods(fleet, "n1", [*fleet.pods["n1"], member("n1", "a")])
    fleet = go_on(fleet, policy, late)
    assert first_start(fleet, policy, late, build.NOW + DAY) == (late + 2 * HOUR, {"n0", "n1"})


def test_nodes_whose_patience_ends_at_different_times_start_together_after_the_last() -> None:
    policy = rules(2, opportunistic=OpportunisticSettings(60.0, 600.0))
    fleet = running({"n0": "a", "n1": "a"}, 2)
    fleet = with_record(with_record(fleet, "n0", waiting=build.NOW - 700), "n1", waiting=build.NOW - 500)
    plan = decide(fleet, policy, build.NOW)
    assert started(plan) == set()
    what = plan.holds["n0"].what
    assert isinstance(what, GangAwaited)
    assert plan.holds["n0"].until == build.NOW + 100
    assert starts(fleet, policy, build.NOW + 101) == {"n0", "n1"}


def test_a_domain_that_has_no_room_for_the_whole_gang_lets_it_go_in_parts() -> None:
    policy = rules(2, domains=DomainSettings("rack", DomainMode.SPREAD, 1))
    fleet = running({"n0": "a", "n1": "a"}, 2)
    nodes = {name: replace(node, labels={**node.labels, "rack": "x"}) for name, node in fleet.nodes.items()}
    assert starts(replace(fleet, nodes=nodes), policy) == {"n0"}


def test_a_disruption_budget_that_lets_one_pod_go_lets_a_gang_go_in_parts() -> None:
    fleet = running({"n0": "a", "n1": "a"}, 2)
    assert starts(replace(fleet, budgets=(BudgetView("default", "pdb", allowed=1),)), rules(2)) == {"n0"}


def test_a_set_is_entered_into_the_ledger_together_and_starts_together() -> None:
    fleet = running({"n0": "a", "n1": "a", "n2": "b"}, 3)
    for name in fleet.nodes:
        fleet = with_record(fleet, name)
    fleet = replace(fleet, nodes={name: node for name, node in fleet.nodes.items() if name != "n2"}, grants={})
    (grant,) = [action for action in decide(fleet, rules(2), build.NOW).actions if isinstance(action, GrantNodes)]
    assert set(grant.add) == {"n0", "n1"}
    assert starts(fleet, rules(2)) == set()
    assert starts(replace(fleet, grants=grant.add), rules(2)) == {"n0", "n1"}
