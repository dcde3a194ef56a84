"""Gangs and notices on paper: what is announced has not left yet, and nodes that wait for each other do so once."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import GrantNodes
from gpuward.model.notice import ALWAYS, NoticeSettings, encode_notice, new_notice
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.upgrade.decide import decide
from tests import build
from tests.upgrade import world
from tests.upgrade.test_gangs import DAY, HOUR, first_start, left_and_back, member, rules, running, started, with_record

replace = msgspec.structs.replace
BEFORE = 2 * HOUR
POLICY = rules(3, notice=NoticeSettings(BEFORE))


def noticed(fleet: Snapshot, node: str, ends: float) -> Snapshot:
    """Give a node notice that ends so many seconds from now."""
    view = fleet.nodes[node]
    notice = new_notice(view, "560", "", BEFORE, build.NOW + ends - BEFORE)
    return world.annotate(fleet, node, names.NOTICE, encode_notice(notice))


@pytest.mark.parametrize("gangs", [{"n0": "a", "n1": "a", "n2": "a"}, {"n0": "a", "n1": "ab", "n2": "b"}])
def test_notices_that_end_one_after_the_other_are_waited_for_once(gangs: dict[str, str]) -> None:
    fleet = running(gangs, 3)
    for node, ends in (("n0", -3.1 * HOUR), ("n1", -2.1 * HOUR), ("n2", 0.1 * HOUR)):
        fleet = noticed(fleet, node, ends)
    assert first_start(fleet, POLICY, build.NOW, build.NOW + 10 * DAY) == (build.NOW + 0.1 * HOUR, {"n0", "n1", "n2"})


def still_announced() -> Snapshot:
    """Return a fleet in which a gang left n0 for n1, which needs no notice, and has a pod yet on n2, which was given some."""
    fleet = left_and_back()
    fleet = world.with_pods(fleet, "n1", [replace(pod, acknowledged=ALWAYS) if pod.gang else pod for pod in fleet.pods["n1"]])
    return noticed(world.with_pods(fleet, "n2", [*fleet.pods["n2"], member("n2", "a")]), "n2", BEFORE)


def test_a_gang_is_spared_while_a_node_that_it_has_to_leave_waits_for_the_end_of_its_notice() -> None:
    fleet = still_announced()
    plan = decide(fleet, POLICY, build.NOW)
    assert (started(plan), plan.holds["n1"].reason) == (set(), Reason.GANG_SPARED)
    assert started(decide(fleet, POLICY, build.NOW + BEFORE)) == {"n1", "n2"}, "it leaves once more, and together"


def test_with_a_ledger_no_node_is_entered_that_would_be_spared_in_the_next_pass() -> None:
    fleet = with_record(with_record(still_announced(), "n1"), "n2")
    actions = decide(replace(fleet, grants={}), POLICY, build.NOW).actions
    assert [action for action in actions if isinstance(action, GrantNodes)] == []
