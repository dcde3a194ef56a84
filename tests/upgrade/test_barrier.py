"""A bug that one node brings to light holds that node and no other."""

from __future__ import annotations

import pytest

from gpuward.model.explain import sentence
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from gpuward.upgrade.facts import NodeFacts
from gpuward.upgrade.step import STEPS, Step
from tests.build import NOW, fleet, policy


@pytest.mark.weakness(4, 26)
@pytest.mark.parametrize("state", [State.DONE, State.CORDON_REQUIRED])
def test_one_node_that_cannot_be_decided_on_does_not_stop_the_others(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    right = STEPS[state]

    def wrong(node: NodeFacts, rules: UpgradePolicy, now: float) -> Step:
        if node.node.name == "n1":
            raise ZeroDivisionError("a bug")
        return right(node, rules, now)

    monkeypatch.setitem(STEPS, state, wrong)
    snapshot = fleet(nodes=3, driver="550", target="560", state=State.DONE)
    plan = decide(snapshot, policy(parallel=3), NOW)
    assert plan.nodes["n1"].hold is not None
    assert plan.nodes["n1"].hold.reason is Reason.UNDECIDED
    assert "ZeroDivisionError: a bug" in sentence(plan.nodes["n1"].hold)
    assert {action.lane for action in plan.actions} == {"n0", "n2"}
