"""One plan of the decisions about several upgrade policies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.controllers.planning import AFTER_TROUBLE, Planner, merged
from gpuward.model.actions import CreatePod, DeletePod, GrantNodes
from gpuward.model.containers import PodShape, Pull, PullProgress
from gpuward.model.explain import sentence
from gpuward.model.owners import Claim
from gpuward.model.placement import Placing
from gpuward.model.plan import Counts, NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.snapshot import Snapshot
from gpuward.model.staging import Prestage, PrestageMode
from gpuward.model.states import State
from gpuward.model.views import Owner, PolicyView
from tests import build

NOW = build.NOW
A, B = (build.policy(parallel=1, driver=name) for name in "ab")


def pools() -> Snapshot:
    """Return four nodes, two of each NVIDIADriver, whose drivers are out of date."""
    nodes, pods, sets, revisions = [], [], [], []
    for name, numbers in (("a", (0, 1)), ("b", (2, 3))):
        uid = f"uid-{name}"
        owner, selector = Owner("NVIDIADriver", name, uid), {names.DRIVER_OWNER: name}
        sets.append(msgspec.structs.replace(build.daemonset(name=name, uid=uid), owner=owner, node_selector=selector))
        revisions += [build.revision("550", 2, owner=uid), build.revision("560", 3, owner=uid)]
        for number in numbers:
            at = f"n{number}"
            nodes.append(build.node(at, labels={names.DRIVER_OWNER: name}))
            pods += [msgspec.structs.replace(build.driver_pod(at), owner=Owner("DaemonSet", name, uid)), build.validator(at)]
    snapshot = build.cluster(nodes, pods)
    return msgspec.structs.replace(snapshot, daemonsets=tuple(sets), revisions=tuple(revisions))


def test_each_policy_has_slots_of_its_own() -> None:
    plan = Planner().decide(pools(), [A, B], NOW)
    under_way = [name for name, status in plan.nodes.items() if status.state is not State.UPGRADE_REQUIRED]
    assert len(plan.nodes) == plan.counts.total == 4
    assert under_way == ["n0", "n2"]


def test_a_policy_about_which_nothing_can_be_decided_holds_its_own_nodes_only() -> None:
    planner, snapshot = Planner(), pools()
    nonsense: Any = None
    broken = msgspec.structs.replace(A, max_unavailable=nonsense)
    before = planner.decide(snapshot, [A, B], NOW)
    plan = planner.decide(snapshot, [broken, B], NOW)
    assert set(plan.troubles) == {"a"}
    assert {action.lane for action in plan.actions} == {action.lane for action in before.actions if action.lane in ("n2", "n3")}
    assert plan.nodes.keys() == before.nodes.keys()
    assert plan.wake_at == NOW + AFTER_TROUBLE
    with pytest.raises(AttributeError):
        planner.decide(msgspec.structs.replace(snapshot, daemonsets=(broken,)), [A], NOW)


def test_a_node_waits_while_nothing_can_be_decided_where_it_goes() -> None:
    labels = {"n0": "b", "n1": "a", "n2": "b", "n3": "b"}
    placing = Placing(tuple(Claim(name, {"pool": name}) for name in "ab"))
    snapshot = pools()
    nodes = {name: msgspec.structs.replace(node, labels={**node.labels, "pool": labels[name]})
             for name, node in snapshot.nodes.items()}
    snapshot = msgspec.structs.replace(snapshot, nodes=nodes)
    a, b = (msgspec.structs.replace(policy, placing=placing) for policy in (A, B))
    assert Planner().decide(snapshot, [a, b], NOW).nodes["n0"].state is not State.UPGRADE_REQUIRED
    nonsense: Any = None
    plan = Planner().decide(snapshot, [a, msgspec.structs.replace(b, rollout=nonsense)], NOW)
    assert set(plan.troubles) == {"b"}
    assert plan.nodes["n0"].state is State.UPGRADE_REQUIRED
    assert "NVIDIADriver b, to which it goes: " in sentence(plan.holds["n0"])
    assert plan.nodes["n1"].state is not State.UPGRADE_REQUIRED, "what stays goes on"


def brought(policy: UpgradePolicy, parallel: int = 5) -> UpgradePolicy:
    prestage = Prestage(PrestageMode.IMAGE, parallel)
    return msgspec.structs.replace(policy, rollout=msgspec.structs.replace(policy.rollout, prestage=prestage))


def test_a_policy_whose_images_nothing_can_be_decided_about_holds_its_own_nodes_only() -> None:
    snapshot, nonsense = pools(), None
    shape = PodShape((Pull("driver", "driver:2"),))
    pod = msgspec.structs.replace(build.gpu_pod("n0", name="staging"), namespace=build.NAMESPACE, pulls=PullProgress(),
                                  created=NOW, labels={names.STAGING_IMAGES: shape.digest}, uses_gpu=False)
    snapshot = msgspec.structs.replace(
        snapshot, rollout_policies=(PolicyView("default"),), pods={**snapshot.pods, "n0": (*snapshot.pods["n0"], pod)},
        daemonsets=tuple(msgspec.structs.replace(each, shape=shape) for each in snapshot.daemonsets))
    well = Planner().decide(snapshot, [brought(A), brought(B)], NOW)
    assert sorted(action.node.name for action in well.actions if isinstance(action, CreatePod)) == ["n1", "n2", "n3"]
    broken: Any = nonsense
    for bad in (brought(A, parallel=broken), msgspec.structs.replace(brought(A), max_unavailable=broken)):
        plan = Planner().decide(snapshot, [bad, brought(B)], NOW)
        assert set(plan.troubles) == {"a"}
        assert sorted(action.node.name for action in plan.actions if isinstance(action, CreatePod)) == ["n2", "n3"]
        assert not any(isinstance(action, DeletePod) for action in plan.actions), "what is pulled on its nodes is pulled on"
        assert plan.wake_at == NOW + AFTER_TROUBLE
    with pytest.raises(TypeError):
        Planner().decide(snapshot, [brought(A, parallel=broken)], NOW)


def test_plans_are_put_together() -> None:
    one = Plan(nodes={"n0": NodeStatus(State.DONE, 0.0)}, wake_at=9.0, counts=Counts(1, 0, 1), auto_upgrade=True)
    other = Plan(nodes={"n1": NodeStatus(State.DONE, 0.0)}, counts=Counts(2, 1, 1, 0, 3))
    both = merged([one, other])
    assert list(both.nodes) == ["n0", "n1"]
    assert (both.wake_at, both.auto_upgrade) == (9.0, True)
    assert both.counts == Counts(3, 1, 2, 0, 3)


def test_one_entry_into_the_ledger_is_made_for_all() -> None:
    one, other = GrantNodes({"n0": "s0"}, ("n9",), "start"), GrantNodes({"n1": "s1"}, ("n0", "n8"), "start")
    done = GrantNodes(drop=("n9",), why="started")
    (both,) = merged([Plan(actions=(one,)), Plan(actions=(other,))]).actions
    assert both == GrantNodes({"n0": "s0", "n1": "s1"}, ("n8", "n9"), "start")
    assert merged([Plan(actions=(done,)), Plan()]).actions == (done,)
    assert merged([Plan(actions=(done,)), Plan(counts=Counts(in_progress=1))]).actions == ()


def test_without_memory_of_a_driver_that_is_gone() -> None:
    planner = Planner()
    planner.decide(pools(), [A, B], NOW)
    plan = planner.decide(pools(), [B, UpgradePolicy(unowned=True)], NOW)
    assert set(plan.nodes) == {"n2", "n3"}
