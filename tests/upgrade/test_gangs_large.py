"""Gangs of hundreds of nodes on paper: a pass over them takes about as long as one over any other fleet."""

from __future__ import annotations

from time import process_time
from typing import Any

import msgspec
import pytest

from gpuward.model.domains import DomainMode, DomainSettings
from gpuward.model.notice import Acknowledge, NoticeSettings
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from tests import build
from tests.upgrade import world
from tests.upgrade.test_gangs import go_on, rules, running, started

replace = msgspec.structs.replace
NODES = 300


def large() -> Snapshot:
    fleet = running({f"n{number}": "a" for number in range(NODES)}, NODES + 1)
    nodes = {name: replace(node, labels={**node.labels, "rack": f"r{number // 4}"})
             for number, (name, node) in enumerate(sorted(fleet.nodes.items()))}
    nodes[f"n{NODES}"] = build.under_way(State.DRAIN_REQUIRED, name=f"n{NODES}")
    return replace(fleet, nodes=nodes)


def seconds(fleet: Snapshot, policy: UpgradePolicy) -> float:
    """Return what a pass takes of the processor, by the quickest of three: others share its caches, and garbage is collected."""
    took = []
    for _ in range(3):
        begun = process_time()
        decide(fleet, policy, build.NOW)
        took.append(process_time() - begun)
    return min(took)


@pytest.mark.parametrize(("limit", "rest"), [
    (NODES, {}), (2 * NODES, {"domains": DomainSettings("rack", DomainMode.SPREAD, 3)})])
def test_a_pass_over_a_large_gang_that_waits_takes_no_longer_than_others(limit: int, rest: dict[str, Any]) -> None:
    fleet, policy = large(), rules(limit, **rest)
    without = replace(policy, max_parallel_upgrades=1, rollout=replace(policy.rollout, gangs=None))
    assert {hold.reason for name, hold in decide(fleet, policy, build.NOW).holds.items() if name != f"n{NODES}"} == {
        Reason.GANG_AWAITED}
    assert seconds(fleet, policy) < 10 * seconds(fleet, without)


def test_a_node_whose_notice_is_not_answered_says_so_and_not_that_it_waits_for_others() -> None:
    policy = rules(3, notice=NoticeSettings(60.0, Acknowledge.REQUIRED))
    fleet = go_on(running({"n0": "a", "n1": "a"}, 2), policy)
    others = {f"n{number}": build.under_way(State.DRAIN_REQUIRED, name=f"n{number}") for number in (2, 3)}
    idle = build.fleet(4, state=State.UPGRADE_REQUIRED)
    fleet = replace(fleet, nodes={**fleet.nodes, **others}, pods={**idle.pods, **fleet.pods})
    answered = [replace(pod, acknowledged="always") if pod.gang else pod for pod in fleet.pods["n1"]]
    plan = decide(world.with_pods(fleet, "n1", answered), policy, build.NOW + 61)
    assert plan.holds["n0"].reason is Reason.NOTICE_UNANSWERED
    assert "n1" in started(plan)
