"""Which nodes lack an NVIDIADriver's DaemonSet, and which are to have no driver of ours."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import PatchNode
from gpuward.model.owners import Claim
from gpuward.model.placement import Placing
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import MAINTENANCE, State
from gpuward.model.views import PodView
from gpuward.upgrade.decide import decide
from tests.build import NOW, cluster, driver_pod, node, policy, under_way, validator

UNOWNED = policy(unowned=True, auto_upgrade=False, placing=Placing((Claim("x", {"pool": "x"}),)))
LABELS = {names.GPU_PRESENT: "true", names.DEPLOY_DRIVER: "true"}


def one(*pods: PodView, **labels: str) -> Snapshot:
    """Build a node for which there is no DaemonSet."""
    return msgspec.structs.replace(cluster([node("n0", labels={**LABELS, **labels})], pods), daemonsets=())


def test_a_node_that_is_to_have_a_driver_and_gets_none_counts() -> None:
    plan = decide(one(), UNOWNED, NOW)
    assert plan.holds["n0"].reason is Reason.NOT_SELECTED
    assert (plan.counts.total, plan.counts.up_to_date) == (1, 0)


@pytest.mark.parametrize("labels", [
    {names.GPU_PRESENT: "false"}, {names.DEPLOY_DRIVER: "pre-installed"}, {names.DEPLOY_DRIVER: "false"},
    {names.DEPLOY_OPERANDS: "false", names.DEPLOY_DRIVER: ""}, {names.UPGRADE_SKIP: "true"},
])
def test_a_node_that_is_left_alone_or_has_a_driver_of_its_own_does_not(labels: dict[str, str]) -> None:
    assert decide(one(**labels), UNOWNED, NOW).nodes == {}


def test_a_validator_that_finds_a_driver_where_no_driver_pod_was_has_found_one_of_the_hosts() -> None:
    unready = decide(one(validator(ready=False)), UNOWNED, NOW)
    assert unready.holds["n0"].reason is Reason.NOT_SELECTED
    assert decide(one(validator()), UNOWNED, NOW).nodes == {}


@pytest.mark.parametrize(("bound", "found"), [(0.0, False), (NOW - 200, False), (NOW - 50, True)])
def test_a_validator_from_before_the_node_was_registered_has_found_nothing(bound: float, found: bool) -> None:
    """It may have seen a driver pod of ours, which nobody remembers any more."""
    again = msgspec.structs.replace(node("n0", labels=LABELS), created=NOW - 100)
    snapshot = msgspec.structs.replace(cluster([again], [validator(created=NOW - 300, bound=bound)]), daemonsets=())
    assert (decide(snapshot, UNOWNED, NOW).nodes == {}) is found


def test_without_a_cluster_policy_and_while_nvidia_drivers_are_not_known_nothing_is_said() -> None:
    snapshot = one()
    for changes in ({"absent": "no ClusterPolicy"}, {"placing": None}):
        assert decide(snapshot, msgspec.structs.replace(UNOWNED, **changes), NOW).nodes == {}


def test_a_node_that_is_about_to_be_owned_only_waits() -> None:
    plan = decide(one(pool="x"), UNOWNED, NOW)
    assert plan.holds["n0"].reason is Reason.DRIVER_POD_MISSING


@pytest.mark.parametrize(("driver_type", "reason"), [
    ("vgpu-host-manager", Reason.WRONG_DRIVER_TYPE), ("gpu", Reason.DRIVER_POD_MISSING), ("vgpu", Reason.DRIVER_POD_MISSING),
    ("", Reason.DRIVER_POD_MISSING)])
@pytest.mark.parametrize("owned", [True, False])
def test_a_node_with_containers_waits_for_no_driver_of_a_host(driver_type: str, reason: Reason, owned: bool) -> None:
    placing = Placing((Claim("x", {"pool": "x"}, driver_type=driver_type),))
    snapshot = one(pool="x", **({names.DRIVER_OWNER: "x"} if owned else {}))
    every = policy(unowned=True, auto_upgrade=False, placing=placing), policy(driver="x", placing=placing)
    plans = [decide(snapshot, each, NOW) for each in every]
    assert [plan.holds["n0"].reason for plan in plans if plan.nodes] == [reason]


@pytest.mark.parametrize("state", sorted(MAINTENANCE))
def test_a_node_that_a_maintenance_operator_has_is_left_to_it_though_nobody_drives_it(state: State) -> None:
    view = under_way(state, labels={**LABELS, names.DRIVER_OWNER: ""})
    snapshot = msgspec.structs.replace(cluster([view], [driver_pod(orphan=True)]), daemonsets=())
    plan = decide(snapshot, UNOWNED, NOW)
    assert (plan.nodes["n0"].state, plan.holds["n0"].reason) == (state, Reason.MAINTENANCE)
    assert not any(isinstance(action, PatchNode) and action.unschedulable is not None for action in plan.actions)
