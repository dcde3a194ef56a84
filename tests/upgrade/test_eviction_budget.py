"""Admission under disruption budgets: nobody is cordoned whose pods could not go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward.model.budgets import BudgetView
from gpuward.model.explain import sentence
from gpuward.model.plan import Hold
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.rollout import RolloutSettings
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, fleet, policy

ALL = policy(parallel=0)


def under(snapshot: Snapshot, allowed: int, *, namespace: str = "ml") -> Snapshot:
    """Protect every pod of a namespace by one budget."""
    return msgspec.structs.replace(snapshot, budgets=(BudgetView(namespace, "pdb", "uid-pdb", allowed=allowed),))


def started(snapshot: Snapshot) -> tuple[list[str], dict[str, Reason]]:
    """Return the nodes that a pass puts under way, and why the others are held."""
    plan = decide(snapshot, ALL, NOW)
    going = [name for name, status in plan.nodes.items() if status.state is State.POD_DELETION_REQUIRED]
    return going, {name: hold.reason for name, hold in plan.holds.items() if name not in going}


def queue(**gpu_pods: int) -> Snapshot:
    """Build a fleet that waits, with so many GPU pods on its nodes."""
    return fleet(nodes=3, state=State.UPGRADE_REQUIRED, gpu_pods={int(name[1:]): pods for name, pods in gpu_pods.items()})


def test_a_budget_that_lets_nobody_go_holds_its_nodes_and_no_other() -> None:
    snapshot = under(queue(n0=1, n1=1), 0, namespace=queue(n0=1).pods["n0"][-1].namespace)
    going, held = started(snapshot)
    assert (going, held["n0"], held["n1"]) == ([], Reason.BUDGET_USED_UP, Reason.BUDGET_USED_UP)
    assert "n2" not in {name for name, reason in held.items() if reason is Reason.BUDGET_USED_UP}
    hold = decide(snapshot, ALL, NOW).holds["n0"]
    assert "lets none go now; pod " in sentence(hold)


@pytest.mark.weakness(43)
def test_who_is_admitted_uses_the_budget_up_for_the_next() -> None:
    namespace = queue(n0=1).pods["n0"][-1].namespace
    assert started(under(queue(n0=2, n1=1, n2=1), 1, namespace=namespace))[0] == ["n1"]
    assert started(under(queue(n0=2, n1=1, n2=1), 2, namespace=namespace))[0] == ["n1", "n2"]
    assert started(under(queue(n0=2, n1=1, n2=1), 3, namespace=namespace))[0] == ["n0", "n1", "n2"]


def test_a_budget_of_another_namespace_says_nothing() -> None:
    assert started(under(queue(n0=1, n1=1), 0, namespace="elsewhere"))[0] == ["n0", "n1"]


def test_nodes_under_way_claim_what_their_pods_still_need() -> None:
    namespace = queue(n0=1).pods["n0"][-1].namespace
    snapshot = fleet(nodes=2, state=State.UPGRADE_REQUIRED, states={0: State.POD_DELETION_REQUIRED}, gpu_pods={0: 1, 1: 1})
    assert started(under(snapshot, 1, namespace=namespace))[1]["n1"] is Reason.BUDGET_USED_UP
    assert "n1" in started(under(snapshot, 2, namespace=namespace))[0]


def why(*budgets: BudgetView, policy: UpgradePolicy = ALL, **pod: Any) -> tuple[State | None, Hold | None]:
    """Return what becomes of a node with one GPU pod under budgets."""
    snapshot = build.cluster([build.node(state=State.UPGRADE_REQUIRED)], [build.driver_pod(), build.gpu_pod(**pod)])
    status = decide(msgspec.structs.replace(snapshot, budgets=budgets), policy, NOW).nodes["n0"]
    return status.state, status.hold


NEVER = BudgetView("default", "never", "u1", allowed=0, healthy=2, desired=2, expected=2)
USED_UP = BudgetView("default", "used-up", "u2", allowed=0, healthy=2, desired=2, expected=3)
ROOMY = BudgetView("default", "roomy", "u3", allowed=5, healthy=9, desired=4, expected=9)
KILLING = policy(parallel=0, rollout=RolloutSettings(kill_at_deadline=True))


def test_a_budget_that_would_never_let_a_pod_go_is_another_matter_than_one_that_is_used_up() -> None:
    _, never = why(NEVER)
    assert never is not None
    assert sentence(never) == (
        "disruption budget default/never would never let pod default/train go: it wants 2 healthy pods, and 2 are there"
    )
    _, used_up = why(USED_UP)
    assert used_up is not None
    assert used_up.reason is Reason.BUDGET_USED_UP


def test_a_budget_over_no_pods_says_nothing_about_never() -> None:
    _, hold = why(msgspec.structs.replace(NEVER, expected=0, desired=0))
    assert hold is not None
    assert hold.reason is Reason.BUDGET_USED_UP


@pytest.mark.parametrize(
    ("budgets", "rules", "starts"),
    [
        ([NEVER], ALL, False),
        ([NEVER], KILLING, True),
        ([USED_UP], KILLING, False),
        ([ROOMY], ALL, True),
        ([ROOMY, msgspec.structs.replace(ROOMY, name="b")], ALL, False),
        ([ROOMY, msgspec.structs.replace(ROOMY, name="b")], KILLING, True),
        ([ROOMY, USED_UP], KILLING, False),
    ],
    ids=["never", "never but killed", "slow though killed", "room", "two", "two but killed", "two, one slow, though killed"],
)
def test_who_starts_under_which_budgets(budgets: list[BudgetView], rules: UpgradePolicy, starts: bool) -> None:
    state, _ = why(*budgets, policy=rules)
    assert (state is State.POD_DELETION_REQUIRED) is starts


def test_two_budgets_over_one_pod_are_both_named() -> None:
    _, hold = why(ROOMY, msgspec.structs.replace(ROOMY, name="b"))
    assert hold is not None
    assert hold.reason is Reason.PROTECTED_PODS
    assert "disruption budgets default/roomy, default/b cover it" in sentence(hold)


@pytest.mark.parametrize("pod", [{"phase": "Pending"}, {"deleting": True}], ids=["pending", "going"])
def test_pods_that_the_api_evicts_in_any_case_need_no_budget(pod: dict[str, Any]) -> None:
    assert why(NEVER, ROOMY, **pod)[0] is State.POD_DELETION_REQUIRED


def test_a_pod_that_is_not_ready_needs_no_room_while_the_others_are_healthy() -> None:
    assert why(msgspec.structs.replace(USED_UP, healthy=2), ready=False)[0] is State.POD_DELETION_REQUIRED
    assert why(msgspec.structs.replace(USED_UP, healthy=1), ready=False)[0] is State.UPGRADE_REQUIRED
    assert why(msgspec.structs.replace(USED_UP, healthy=1, spares_unhealthy=False), ready=False)[0] is State.POD_DELETION_REQUIRED


def test_a_mere_restart_needs_no_budget() -> None:
    pods = [build.driver_pod(config_digest="d"), build.device_plugin(), build.gpu_pod()]
    snapshot = build.cluster([build.node(state=State.UPGRADE_REQUIRED)], pods, digest="d")
    plan = decide(msgspec.structs.replace(snapshot, budgets=(NEVER,)), ALL, NOW)
    assert plan.nodes["n0"].state is State.POD_RESTART_REQUIRED
