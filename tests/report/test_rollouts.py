"""How the histories of nodes become rollouts: each upgrade is in exactly one, and nobody has to have counted them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuward import names
from gpuward.model.course import Course
from gpuward.model.history import Ending, PastUpgrade, encode_history
from gpuward.model.record import CordonOwner, Record
from gpuward.model.states import State
from gpuward.model.views import NodeView
from gpuward.report.rollouts import APART, chosen, past_rollouts
from tests.build import node

DAY = 86_400.0
START = 1_767_323_045.0


def past(began: float, to: str = "580.95.05", **rest: Any) -> PastUpgrade:
    spent = (0.0, 10.0, 250.0, 40.0)
    values: dict[str, Any] = {"digest": "6f9c7d5b", "before": "580.95.04", "out": 300.0, "gpus": 8, "spent": spent, **rest}
    return PastUpgrade(began, began + 300, to=to, **values)


def remembering(name: str, *history: PastUpgrade, record: Record | None = None) -> NodeView:
    return node(name, annotations={names.UPGRADE_HISTORY: encode_history(history) or ""}, remembers=record)


def test_nodes_that_went_to_the_same_driver_are_one_rollout() -> None:
    (rollout,) = past_rollouts([
        remembering("a", past(START, asked="kubectl-edit", evicted=2, lost=7200.0)),
        remembering("b", past(START + 400, asked="kubectl-edit", failures=2, failed_in="drain-required")),
        remembering("c", past(START + DAY, before="570.1", ending=Ending.FAILED, failures=1)),
    ], START + 2 * DAY)
    assert (rollout.name, rollout.policy, rollout.to, rollout.asked) == (
        "20260102-030405", "ClusterPolicy", "580.95.05", ("kubectl-edit",))
    assert rollout.before == {"580.95.04": 2, "570.1": 1}
    assert (rollout.outcomes, rollout.failures, rollout.evicted) == ({"done": 2, "failed": 1}, 3, 2)
    assert (rollout.gpu_seconds, rollout.lost) == (7200.0, 7200.0)
    assert (rollout.began, rollout.ended) == (START, START + DAY + 300)
    assert [one.node for one in rollout.upgrades] == ["a", "b", "c"]


@pytest.mark.parametrize("other", [
    past(START + 400, to="580.95.06"), past(START + 400, policy="pool-a"), past(START + 300 + APART + 1),
], ids=["to", "policy", "time"])
def test_what_differs_is_another_rollout(other: PastUpgrade) -> None:
    second, first = past_rollouts([remembering("a", past(START)), remembering("b", other)], START + 30 * DAY)
    assert ([one.node for one in first.upgrades], [one.node for one in second.upgrades]) == (["a"], ["b"])


def test_a_node_has_one_upgrade_of_a_rollout() -> None:
    """To the same driver again, as where somebody asks for it anew."""
    found = past_rollouts([remembering("a", past(START + 2000), past(START)), remembering("b", past(START + 400))], START + DAY)
    assert [len(one.upgrades) for one in found] == [1, 2]


def test_pools_with_digests_of_their_own_are_one_rollout_while_they_go_side_by_side() -> None:
    other = past(START + 200, digest="01234567")
    (rollout,) = past_rollouts([remembering("a", past(START)), remembering("b", other)], START + DAY)
    assert rollout.as_json(nodes=False)["digests"] == ["01234567", "6f9c7d5b"]
    again = past_rollouts([remembering("a", past(START)), remembering("b", past(START + 900, digest="01234567"))], START + DAY)
    assert len(again) == 2


def test_rollouts_of_the_same_second_have_different_names() -> None:
    found = past_rollouts([remembering("a", past(START, policy="a")), remembering("b", past(START, policy="b"))], START + DAY)
    assert [one.name for one in found] == [
        "20260102-030405.a.580.95.05.6f9c7d5b", "20260102-030405.b.580.95.05.6f9c7d5b"]


def test_what_is_under_way_is_told_of_as_far_as_it_is() -> None:
    course = Course(START, START, 0.0, "580.95.04", "580.95.05", "6f9c7d5b", "helm", (0.0, 10.0, 0.0, 0.0), 8, 1, 0.0)
    busy = Record(State.POD_RESTART_REQUIRED, START + 10, START, cordon=CordonOwner.GPUWARD, course=course)
    failed = past(START - 4000, ending=Ending.FAILED, failures=1)
    (rollout,) = past_rollouts([remembering("a", failed, record=busy)], START + 100)
    (one,) = rollout.upgrades
    assert (rollout.ended, rollout.outcomes, one.under_way) == (None, {"under way": 1}, "pod-restart-required")
    assert (one.past.out, one.past.began, one.past.failures, one.past.evicted) == (400.0, START - 4000, 1, 1)
    assert one.as_json()["ended"] is None


def test_a_failed_node_is_out_of_service_until_somebody_ends_that() -> None:
    left = Record(State.FAILED, START + 300, START, cordon=CordonOwner.GPUWARD, course=Course(out=START + 300))
    (rollout,) = past_rollouts([remembering("a", past(START, ending=Ending.FAILED, failures=1), record=left)], START + 1000)
    assert rollout.upgrades[0].past.out == 1000.0


UPGRADES = st.builds(
    past, st.integers(0, 400).map(lambda hours: START + hours * 3600.0), st.sampled_from(["1", "2"]),
    policy=st.sampled_from(["", "a"]), digest=st.sampled_from(["x", "y"]), ending=st.sampled_from(Ending))
HISTORIES = st.dictionaries(st.sampled_from("abcdef"), st.lists(UPGRADES, max_size=4, unique_by=lambda one: one.began).map(
    lambda found: sorted(found, key=lambda one: -one.began)), max_size=6)


@settings(deadline=None, derandomize=True)
@given(HISTORIES)
def test_each_upgrade_is_in_one_rollout_and_no_node_twice(histories: dict[str, list[PastUpgrade]]) -> None:
    nodes = [remembering(name, *history) for name, history in histories.items()]
    found = past_rollouts(nodes, START + 400 * DAY)
    told = [
        (one.node, one.past) for rollout in found for one in rollout.upgrades]
    assert len(told) == sum(map(len, histories.values()))
    for name, history in histories.items():
        assert sorted(one.began for node, one in told if node == name) == sorted(one.began for one in history)
    for rollout in found:
        assert len({one.node for one in rollout.upgrades}) == len(rollout.upgrades)
        assert {(one.past.policy, one.past.to) for one in rollout.upgrades} == {
            (rollout.upgrades[0].past.policy, rollout.upgrades[0].past.to)}
        assert chosen(found, rollout.name) == rollout
    assert [rollout.began for rollout in found] == sorted((rollout.began for rollout in found), reverse=True)
    assert len({rollout.name for rollout in found}) == len(found)


def test_one_is_chosen_by_its_name_or_by_what_it_brought() -> None:
    found = past_rollouts([remembering("a", past(START + DAY, to="2"), past(START, to="1"))], START + 2 * DAY)
    newer, older = found
    assert (chosen(found, "1"), chosen(found, "2"), chosen(found, "20260102"), chosen(found, "x")) == (older, newer, older, None)
