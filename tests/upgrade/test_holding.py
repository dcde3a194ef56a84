"""What the fleet holds a node for is found once, and anew whenever the node, the fleet or the policy is another one."""

from __future__ import annotations

import msgspec

from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from gpuward.upgrade.node_decision import DecisionCache
from tests import build

TWO = build.policy(parallel=2, unavailable="100%")


def fleet(*done: str) -> Snapshot:
    """Return six nodes that wait for their upgrade, but for those that are done."""
    states = {f"n{number}": State.DONE if f"n{number}" in done else State.UPGRADE_REQUIRED for number in range(6)}
    views = [build.node(name, state, remembers=build.record(state)) for name, state in states.items()]
    pods = [pod for name in states for pod in (build.driver_pod(name), build.validator(name))]
    return build.cluster(views, pods)


WAITING = fleet()


def held(snapshot: Snapshot, policy: UpgradePolicy, memory: DecisionCache, after: float = 0.0) -> list[Reason]:
    """Return what limits hold nodes, and make sure that nothing else is decided without a memory."""
    plan = decide(snapshot, policy, build.NOW + after, memory)
    assert plan == decide(snapshot, policy, build.NOW + after)
    return [hold.reason for hold in plan.holds.values() if hold.reason in (Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT)]


def test_a_node_that_waits_on_is_not_thought_about_again() -> None:
    memory = DecisionCache()
    before = decide(WAITING, TWO, build.NOW, memory)
    nodes = {**WAITING.nodes, "n5": msgspec.structs.replace(WAITING.nodes["n5"], version="2")}
    after = decide(msgspec.structs.replace(WAITING, nodes=nodes), TWO, build.NOW + 5, memory)
    assert after.nodes["n4"].hold is not None
    assert after.nodes["n4"].hold is before.nodes["n4"].hold
    assert after.nodes["n5"].hold == before.nodes["n5"].hold


def test_another_fleet_or_policy_is_looked_at_anew() -> None:
    memory = DecisionCache()
    assert held(WAITING, TWO, memory) == [Reason.PARALLEL_LIMIT] * 4
    assert held(WAITING, TWO, memory, 1) == [Reason.PARALLEL_LIMIT] * 4
    assert held(WAITING, build.policy(parallel=1, unavailable="100%"), memory, 2) == [Reason.PARALLEL_LIMIT] * 5
    assert held(WAITING, build.policy(parallel=2, unavailable=1), memory, 3) == [Reason.UNAVAILABLE_LIMIT] * 5
    assert held(fleet("n0", "n1", "n2"), build.policy(parallel=1), memory, 4) == [Reason.PARALLEL_LIMIT] * 5
    assert held(WAITING, TWO, memory, 5) == [Reason.PARALLEL_LIMIT] * 4
