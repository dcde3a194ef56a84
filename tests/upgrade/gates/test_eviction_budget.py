"""Admission under disruption budgets: nobody is cordoned whose pods could not go."""

from __future__ import annotations

import msgspec

from gpuward.model.plan import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import BudgetView
from gpuward.upgrade.decide import decide
from gpuward.upgrade.explain import sentence
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
    assert "lets 0 pods go now and nodes under way need 0" in sentence(hold)


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
