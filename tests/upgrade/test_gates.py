"""Each gate: what it holds, with which arguments, and what it lets pass; and the order in which they are asked."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.explain import sentence
from gpuward.model.policy import DrainSettings, UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.states import State
from gpuward.model.views import NodeView, Owner, PodView
from gpuward.upgrade.facts_cache import gather
from gpuward.upgrade.fleet import Fleet
from gpuward.upgrade.fleet_gates import GATES, max_unavailable
from tests import build
from tests.build import device_plugin, driver_pod, gpu_pod, node, policy
from tests.upgrade.one import facts

FREE = Fleet(total=10)
QUEUED = node(state=State.UPGRADE_REQUIRED)
NO_VALIDATOR = node(state=State.UPGRADE_REQUIRED, labels={names.DEPLOY_VALIDATOR: "false"})
SKIP = {names.UPGRADE_SKIP: "true"}
DRAIN = policy(drain=DrainSettings(enable=True))
HARD_DRAIN = policy(drain=DrainSettings(enable=True, force=True))

Case = tuple[NodeView, list[PodView], UpgradePolicy, Reason | None]
CASES: dict[str, Case] = {
    "nothing in the way": (QUEUED, [driver_pod()], policy(), None),
    "skip label": (node(state=State.UPGRADE_REQUIRED, labels=SKIP), [driver_pod()], policy(), Reason.SKIPPED),
    "skip label that is not exactly true": (
        node(state=State.UPGRADE_REQUIRED, labels={names.UPGRADE_SKIP: "True"}), [driver_pod()], policy(), None,
    ),
    "invalid policy": (QUEUED, [driver_pod()], policy(admit=False), Reason.INVALID_POLICY),
    "node being deleted": (node(state=State.UPGRADE_REQUIRED, deleting=True), [driver_pod()], policy(), Reason.NODE_GONE),
    "node not ready": (node(state=State.UPGRADE_REQUIRED, ready=False), [driver_pod()], policy(), Reason.NODE_NOT_READY),
    "node that does not say": (node(state=State.UPGRADE_REQUIRED, ready=None), [driver_pod()], policy(), Reason.NODE_NOT_READY),
    "node not ready but cordoned": (
        node(state=State.UPGRADE_REQUIRED, ready=False, cordoned=True), [driver_pod()], policy(), Reason.NODE_NOT_READY,
    ),
    "no driver pod": (build.under_way(State.UPGRADE_REQUIRED), [], policy(), Reason.DRIVER_POD_MISSING),
    "label that keeps validators away": (NO_VALIDATOR, [driver_pod()], policy(), Reason.VALIDATION_OFF),
    "the same, and none is ready": (
        NO_VALIDATOR, [driver_pod(), build.validator(ready=False)], policy(), Reason.VALIDATION_OFF,
    ),
    "label of an operand that validation does without as yet": (NO_VALIDATOR, [driver_pod(), build.validator()], policy(), None),
    "two driver pods": (QUEUED, [driver_pod(), driver_pod(name="other", orphan=True)], policy(), Reason.TWO_DRIVER_PODS),
    "a second driver pod that goes": (QUEUED, [driver_pod(), driver_pod(name="other", deleting=True)], policy(), None),
    "bare GPU pod": (QUEUED, [driver_pod(), gpu_pod(owner=None)], policy(), Reason.PROTECTED_PODS),
    "bare GPU pod with force": (QUEUED, [driver_pod(), gpu_pod(owner=None)], policy(force=True), None),
    "bare GPU pod that goes already": (QUEUED, [driver_pod(), gpu_pod(owner=None, deleting=True)], policy(), None),
    "bare GPU pod that a drain may take": (QUEUED, [driver_pod(), gpu_pod(owner=None)], HARD_DRAIN, None),
    "bare GPU pod that a drain may not take": (QUEUED, [driver_pod(), gpu_pod(owner=None)], DRAIN, Reason.PROTECTED_PODS),
    "GPU pod of a DaemonSet, which a drain passes over": (
        QUEUED, [driver_pod(), gpu_pod(owner="DaemonSet")], HARD_DRAIN, Reason.PROTECTED_PODS,
    ),
    "pod without a GPU that a drain could not take, but none is needed": (
        QUEUED, [driver_pod(), gpu_pod(), build.pod(owner=None)], DRAIN, None,
    ),
    "pod without a GPU that would stop the drain that is needed": (
        QUEUED,
        [driver_pod(), gpu_pod(name="spool", empty_dir=True), build.pod(owner=None)],
        policy(drain=DrainSettings(enable=True, delete_empty_dir=True)),
        Reason.PROTECTED_PODS,
    ),
}


@pytest.mark.weakness(7, 20)
@pytest.mark.parametrize(("view", "pods", "rules", "reason"), CASES.values(), ids=CASES.keys())
def test_a_gate_holds_or_lets_pass(view: NodeView, pods: list[PodView], rules: UpgradePolicy, reason: Reason | None) -> None:
    candidate = facts(view, *pods, policy=rules)
    holds = [hold for gate in GATES if (hold := gate(candidate, FREE, rules)) is not None]
    assert [hold.reason for hold in holds] == ([reason] if reason else [])
    assert all(sentence(hold) for hold in holds)


def test_a_template_that_has_not_settled_holds() -> None:
    candidate = facts(QUEUED, driver_pod(), settled=False)
    assert [hold.reason for gate in GATES if (hold := gate(candidate, FREE, policy()))] == [Reason.TEMPLATE_SETTLING]


def test_protected_pods_do_not_matter_where_nothing_needs_to_leave() -> None:
    candidate = facts(QUEUED, driver_pod(config_digest="d"), device_plugin(), gpu_pod(owner=None), digest="d")
    assert [hold for gate in GATES if (hold := gate(candidate, FREE, policy()))] == []


def test_the_first_gate_that_holds_is_the_reason_people_read() -> None:
    worst = node(state=State.UPGRADE_REQUIRED, labels=SKIP, ready=False, deleting=True)
    pods = [driver_pod(), driver_pod(name="other"), gpu_pod(owner=None)]
    rules = policy(parallel=1, unavailable=1, admit=False)
    candidate = facts(worst, *pods, policy=rules, settled=False)
    full = Fleet(total=10, in_progress=frozenset({"x"}), unavailable=frozenset({"x"}))
    held = [hold.reason for gate in GATES if (hold := gate(candidate, full, rules))]
    assert held == [
        Reason.SKIPPED, Reason.INVALID_POLICY, Reason.NODE_GONE, Reason.NODE_NOT_READY, Reason.TWO_DRIVER_PODS,
        Reason.TEMPLATE_SETTLING, Reason.PROTECTED_PODS, Reason.UNAVAILABLE_LIMIT, Reason.PARALLEL_LIMIT,
    ]


@pytest.mark.parametrize(
    ("under_way", "limit", "reason"),
    [(0, 1, None), (1, 1, Reason.PARALLEL_LIMIT), (2, 1, Reason.PARALLEL_LIMIT), (2, 3, None), (9, 0, None)],
)
def test_max_parallel_counts_the_nodes_under_way(under_way: int, limit: int, reason: Reason | None) -> None:
    busy = frozenset(f"x{number}" for number in range(under_way))
    rules = policy(parallel=limit)
    holds = [hold for gate in GATES if (hold := gate(facts(QUEUED, driver_pod()), Fleet(20, busy, busy), rules))]
    assert [hold.reason for hold in holds] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("out", "bound", "reason"),
    [
        ([], 1, None),
        (["x"], 1, Reason.UNAVAILABLE_LIMIT),
        (["x"], "25%", None),
        (["x", "y", "z"], "25%", Reason.UNAVAILABLE_LIMIT),
        (["x"] * 2, 2, None),
        ([], 0, Reason.NO_NODE_MAY_START),
        ([], "0%", Reason.NO_NODE_MAY_START),
        (["n0"], 0, None),
        (["n0", "x", "y", "z"], 1, None),
        (["x"] * 9, None, None),
    ],
)
def test_max_unavailable_counts_nodes_once_and_lets_pass_what_is_out_already(
    out: list[str], bound: str | int | None, reason: Reason | None
) -> None:
    rules = policy(parallel=0, unavailable=bound)
    fleet = Fleet(10, frozenset(), frozenset(out))
    holds = [hold for gate in GATES if (hold := gate(facts(QUEUED, driver_pod()), fleet, rules))]
    assert [hold.reason for hold in holds] == ([reason] if reason else [])


@pytest.mark.parametrize("out", [[], ["x"], ["n0"], ["n0", "x"]])
@pytest.mark.parametrize("pods", [
    [driver_pod(ready=False), build.pod(holds="hostPath /dev/nvidia0")],
    [driver_pod(ready=False), gpu_pod(idle_claim=True)],
    [driver_pod(ready=False), gpu_pod(created=5.0, started=15.0)],
    [driver_pod(ready=False), gpu_pod(ready=False, unheard=True)],
    [driver_pod(ready=False, unheard=True)],
], ids=["a holder of devices", "an idle claim", "a pod older than its node", "a pod not heard of", "a driver not heard of"])
def test_a_node_that_may_be_in_service_though_it_counts_as_out_is_held_by_the_others(out: list[str], pods: list[PodView]) -> None:
    """Such a pod runs whether a driver is loaded or not, or nobody knows whether it does: the worse is taken each time."""
    node = facts(msgspec.structs.replace(QUEUED, created=10.0), *pods)
    assert not node.serves
    held = max_unavailable(node, Fleet(10, frozenset(), frozenset(out)), policy(parallel=0, unavailable=1))
    assert (held is not None) is ("x" in out)


@pytest.mark.parametrize("ready", [True, False])
def test_a_node_that_another_driver_pod_serves_is_held_while_its_own_has_no_node(ready: bool) -> None:
    other = build.daemonset(name="of-a-pool", uid="uid-of-a-pool", driver="a-pool")
    left = msgspec.structs.replace(driver_pod(ready=ready), owner=Owner("DaemonSet", other.name, other.uid))
    pending = driver_pod("", "560", ready=False, begun=False, waiting="Unschedulable", meant_for="n0")
    seen = build.cluster([QUEUED], [left, pending])
    (node,) = gather(msgspec.structs.replace(seen, daemonsets=(*seen.daemonsets, other)), policy())
    assert node.driver == pending
    held = max_unavailable(node, Fleet(10, frozenset(), frozenset(["n0", "x"])), policy(parallel=0, unavailable=1))
    assert (held is not None) is ready


def test_limits_name_the_first_three_nodes_that_use_them_up_and_count_the_others() -> None:
    busy = frozenset({"d", "b", "a", "c"})
    rules = policy(parallel=4, unavailable=4)
    holds = [hold for gate in GATES if (hold := gate(facts(QUEUED, driver_pod()), Fleet(20, busy, busy), rules))]
    assert [sentence(hold) for hold in holds] == [
        "maxUnavailable allows 4, and 4 are out of service already (a, b, c and 1 more)",
        "waits for its turn: 4 of 4 parallel upgrades under way (a, b, c and 1 more)",
    ]


def test_a_node_that_counts_as_out_itself_is_not_among_those_that_it_waits_for() -> None:
    node = facts(QUEUED, driver_pod())
    node = msgspec.structs.replace(node, driver_beside=True)
    held = max_unavailable(node, Fleet(10, frozenset(), frozenset(["n0", "a", "b", "c"])), policy(parallel=0, unavailable=3))
    assert held is not None
    assert sentence(held) == "maxUnavailable allows 3, and 3 are out of service already (a, b, c)"
