"""Several policies in one cluster: each sees its own nodes, its own DaemonSets and their pods, and nothing of the others."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import NodeView, Owner, PodView
from gpuward.upgrade.decide import decide
from tests import build
from tests.build import NOW, node, policy
from tests.upgrade import world

A, B = policy(parallel=0, driver="a"), policy(parallel=0, driver="b")
UNOWNED = policy(parallel=0, unowned=True)


def pod_of(driver: str, at: str, revision: str = "550") -> PodView:
    """Build a driver pod of the DaemonSet of an NVIDIADriver, or of the ClusterPolicy's."""
    pod = build.driver_pod(at, revision, name=f"{driver or 'plain'}-{at}")
    if not driver:
        return pod
    labels = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT, names.REVISION_HASH: revision}
    return msgspec.structs.replace(pod, labels=labels, owner=Owner("DaemonSet", f"ds-{driver}", f"uid-ds-{driver}"))


def owned(name: str, by: str, state: State = State.UNKNOWN) -> NodeView:
    return node(name, state, labels={names.DRIVER_OWNER: by} if by else {})


def two_drivers_and_a_cluster_policy(*, b_settled: bool = True) -> Snapshot:
    """Build nodes of the NVIDIADrivers a and b and of nobody; a and the ClusterPolicy want 560, b wants 570."""
    nodes = [owned("n0", "a"), owned("n1", "b"), owned("n2", "")]
    snapshot = build.cluster(nodes, [pod_of("a", "n0"), pod_of("b", "n1"), pod_of("", "n2")])
    daemonsets = (
        *snapshot.daemonsets,
        build.daemonset(name="ds-a", uid="uid-ds-a", driver="a"),
        build.daemonset(name="ds-b", uid="uid-ds-b", driver="b", settled=b_settled),
    )
    of_a = (build.revision("550", 1, owner="uid-ds-a"), build.revision("560", 2, owner="uid-ds-a"))
    of_b = (build.revision("550", 8, owner="uid-ds-b"), build.revision("570", 9, owner="uid-ds-b"))
    revisions = (*snapshot.revisions, *of_a, *of_b)
    return msgspec.structs.replace(snapshot, daemonsets=daemonsets, revisions=revisions)


@pytest.mark.parametrize(("rules", "mine", "target"), [(A, "n0", "560"), (B, "n1", "570"), (UNOWNED, "n2", "560")])
def test_a_policy_upgrades_its_own_nodes_only(rules: UpgradePolicy, mine: str, target: str) -> None:
    plan = decide(two_drivers_and_a_cluster_policy(), rules, NOW)
    assert set(plan.nodes) == {mine}
    assert {action.lane for action in plan.actions} == {mine}
    record = world.apply(two_drivers_and_a_cluster_policy(), plan.actions).nodes[mine].record
    assert record is not None
    assert record.target == target
    assert plan.counts.total == 1


def test_a_pause_of_one_takes_no_label_from_the_others() -> None:
    snapshot = two_drivers_and_a_cluster_policy()
    for name in snapshot.nodes:
        snapshot = world.relabel(snapshot, name, "upgrade-done")
    plan = decide(snapshot, policy(auto_upgrade=False, driver="a"), NOW)
    assert {action.lane for action in plan.actions} == {"n0"}


@pytest.mark.weakness(29)
def test_a_template_of_one_that_does_not_settle_holds_no_node_of_another() -> None:
    snapshot = two_drivers_and_a_cluster_policy(b_settled=False)
    assert decide(snapshot, A, NOW).nodes["n0"].state is State.POD_RESTART_REQUIRED
    assert decide(snapshot, B, NOW).nodes["n1"].state is State.UNKNOWN


@pytest.mark.weakness(29)
def test_failures_and_limits_of_one_hold_up_nobody_else() -> None:
    nodes = [owned("n0", "a"), *(owned(f"n{number}", "b", State.CORDON_REQUIRED) for number in range(1, 4))]
    snapshot = two_drivers_and_a_cluster_policy()
    pods = {"n0": (pod_of("a", "n0"),), **{f"n{number}": (pod_of("b", f"n{number}"),) for number in range(1, 4)}}
    busy = msgspec.structs.replace(snapshot, nodes={view.name: view for view in nodes}, pods=pods)
    plan = decide(busy, msgspec.structs.replace(A, max_parallel_upgrades=1), NOW)
    assert plan.nodes["n0"].state is State.POD_RESTART_REQUIRED


def test_a_pod_of_another_policys_daemonset_is_no_driver_of_a_node_that_changed_hands() -> None:
    """Its old DaemonSet takes the pod away; until then the new owner has no driver there and touches nothing."""
    snapshot = two_drivers_and_a_cluster_policy()
    moved = msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, "n0": owned("n0", "b", State.POD_RESTART_REQUIRED)})
    plan = decide(moved, B, NOW)
    assert not [action for action in plan.actions if action.lane == "n0" and not isinstance(action, PatchNode)]
    assert build.hold_of(plan, "n0").reason is Reason.DRIVER_POD_MISSING


def test_a_pod_whose_daemonset_is_gone_is_a_matter_of_the_nodes_owner() -> None:
    snapshot = two_drivers_and_a_cluster_policy()
    rest = tuple(ds for ds in snapshot.daemonsets if ds.name != "ds-a")
    inherited = msgspec.structs.replace(snapshot, daemonsets=rest, nodes={"n0": owned("n0", "b")})
    assert "n0" in decide(inherited, B, NOW).nodes
    assert decide(inherited, A, NOW).nodes == {}


def test_two_node_pools_of_one_policy_have_targets_of_their_own() -> None:
    snapshot = build.cluster([node("n0"), node("n1")], [build.driver_pod("n0"), pod_of("b", "n1", "570")])
    plain = msgspec.structs.replace(build.daemonset(name="ds-b", uid="uid-ds-b"), owner=None)
    revisions = (*snapshot.revisions, build.revision("570", 1, owner="uid-ds-b"))
    both = msgspec.structs.replace(snapshot, daemonsets=(*snapshot.daemonsets, plain), revisions=revisions)
    plan = decide(both, policy(parallel=0), NOW)
    assert [status.state for status in plan.nodes.values()] == [State.POD_RESTART_REQUIRED, State.DONE]


def test_without_nvidia_drivers_every_node_is_the_cluster_policys() -> None:
    nodes = decide(two_drivers_and_a_cluster_policy(), policy(), NOW).nodes
    lacking = {name for name, status in nodes.items() if status.hold and status.hold.reason is Reason.DRIVER_POD_MISSING}
    assert (set(nodes), lacking) == ({"n0", "n1", "n2"}, {"n0", "n1"}), "pods of others are no drivers here"
    assert set(decide(build.cluster([owned("n0", "a")], [pod_of("", "n0")]), policy(), NOW).nodes) == {"n0"}


def test_a_node_that_is_left_to_nobody_is_given_back_once_all_drivers_of_others_have_gone() -> None:
    """A pod that nobody made serves on; beside it the old owner's driver is about to go, and pods must not come before it has."""
    mine = build.under_way(State.POD_RESTART_REQUIRED)
    stray = build.driver_pod("n0", name="stray", orphan=True)
    of_a = build.daemonset(name="ds-a", uid="uid-ds-a", driver="a", selects={names.DRIVER_OWNER: "a"})
    snapshot = msgspec.structs.replace(
        build.cluster([mine], []), daemonsets=(of_a,), pods={"n0": (pod_of("a", "n0"), stray)})
    off = msgspec.structs.replace(UNOWNED, auto_upgrade=False)
    assert world.apply(snapshot, decide(snapshot, off, NOW).actions).nodes["n0"].unschedulable
    alone = msgspec.structs.replace(snapshot, pods={"n0": (stray,)})
    assert not world.apply(alone, decide(alone, off, NOW).actions).nodes["n0"].unschedulable
