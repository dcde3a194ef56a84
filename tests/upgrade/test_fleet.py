"""The fleet is counted in sets of nodes, and what a pass gives back is not given out in the same pass."""

from __future__ import annotations

import msgspec
import pytest

from gpuward.model.policy import UpgradePolicy
from gpuward.model.states import State
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.fleet import Fleet, fleet_of, standing
from tests import build

NOBODY: frozenset[str] = frozenset()


def members(**what: object) -> list[NodeFacts]:
    return gather(build.fleet(**what), build.policy())  # type: ignore[arg-type]  # the keywords are those of `fleet`


def counted(before: list[NodeFacts], after: list[NodeFacts], unsettled: frozenset[str]) -> Fleet:
    return fleet_of([standing(*pair, UpgradePolicy()) for pair in zip(before, after, strict=True)], unsettled)


@pytest.mark.weakness(21)
def test_a_node_is_unavailable_once_whatever_the_number_of_reasons() -> None:
    nodes = members(nodes=5, states={0: State.CORDON_REQUIRED, 1: State.DRAIN_REQUIRED}, cordoned=[0, 2], not_ready=[0, 2, 3])
    fleet = counted(nodes, nodes, NOBODY)
    assert fleet.total == 5
    assert fleet.in_progress == {"n0", "n1"}
    assert fleet.unavailable == {"n0", "n1", "n2", "n3"}


def test_failed_nodes_use_no_slot_but_are_out_of_service_while_cordoned() -> None:
    nodes = members(nodes=3, states={0: State.FAILED, 1: State.FAILED}, cordoned=[0])
    fleet = counted(nodes, nodes, NOBODY)
    assert fleet.in_progress == NOBODY
    assert fleet.unavailable == {"n0"}


@pytest.mark.weakness(22)
def test_a_node_that_does_not_say_whether_it_is_ready_is_out_of_service() -> None:
    snapshot = build.cluster([build.node("n0", ready=None)], [build.driver_pod("n0")])
    nodes = gather(snapshot, build.policy())
    assert counted(nodes, nodes, NOBODY).unavailable == {"n0"}


def test_a_node_that_finishes_in_this_pass_still_counts() -> None:
    before = members(nodes=2, states={0: State.UNCORDON_REQUIRED}, cordoned=[0])
    after = [msgspec.structs.replace(before[0], state=State.DONE, unschedulable=False), before[1]]
    fleet = counted(before, after, NOBODY)
    assert fleet.in_progress == {"n0"}
    assert fleet.unavailable == {"n0"}


def test_a_node_whose_last_write_is_in_doubt_counts_as_admitted_from_any_state() -> None:
    nodes = members(nodes=4, states={0: State.UPGRADE_REQUIRED, 1: State.DONE, 2: State.FAILED})
    fleet = counted(nodes, nodes, frozenset({"n0", "n1", "n2", "n3", "stranger"}))
    assert fleet.in_progress == {"n0", "n1", "n2", "n3"}


def test_an_admitted_node_changes_the_fleet_for_the_next_one() -> None:
    nodes = members(nodes=2)
    fleet = counted(nodes, nodes, NOBODY).admitted(nodes[1])
    assert fleet.total == 2
    assert fleet.in_progress == {"n1"}
    assert fleet.unavailable == {"n1"}
