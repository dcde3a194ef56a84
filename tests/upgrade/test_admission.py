"""Waiting for a turn, being admitted, and not needing either any more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.actions import DeletePod, LastLook
from gpuward.model.reasons import Reason
from gpuward.model.record import CordonOwner
from gpuward.model.states import State
from gpuward.model.views import NodeView, PodView
from gpuward.upgrade.admission import turn
from gpuward.upgrade.decide import decide
from gpuward.upgrade.facts import NodeFacts
from tests import build
from tests.build import LONG_AGO, NOW, device_plugin, driver_pod, gpu_pod, node, policy, record, seen, under_way, validator
from tests.upgrade.one import ask, facts

Q = State.UPGRADE_REQUIRED
TO_EVICTION = ["cordon-required", "wait-for-jobs-required", "pod-deletion-required"]
BLOCKED = policy(parallel=0, unavailable=0)


def test_a_node_whose_driver_is_in_step_again_leaves_the_queue() -> None:
    answer = ask(node(state=Q, remembers=record(Q)), driver_pod(driver="560"))
    assert answer.entered == ["upgrade-done"]
    assert answer.patch.unschedulable is None


@pytest.mark.parametrize(
    "view",
    [
        node(state=Q, remembers=record(Q, forced=True)),
        node(state=Q, remembers=record(Q), annotations={names.UPGRADE_REQUESTED: "true"}),
        node(state=Q, remembers=record(Q), annotations={names.SAFE_LOAD: "true"}),
        node(state=Q, remembers=record(State.DONE)),
    ],
    ids=["forced", "requested", "safe load", "relabelled by hand"],
)
def test_a_node_that_was_asked_for_stays_though_its_driver_is_in_step(view: NodeView) -> None:
    answer = ask(view, driver_pod(driver="560"), policy=BLOCKED)
    assert answer.state is Q
    assert answer.reason is Reason.NO_NODE_MAY_START


def test_an_orphan_in_the_queue_stays_there() -> None:
    assert ask(node(state=Q), driver_pod(driver="560", orphan=True), policy=BLOCKED).state is Q


def test_admission_starts_the_clock_and_notes_the_target() -> None:
    answer = ask(node(state=Q, remembers=record(Q, target="550", started=0.0)), driver_pod(), gpu_pod())
    assert answer.entered == TO_EVICTION
    pods = (driver_pod().uid,)
    assert answer.record == seen(State.POD_DELETION_REQUIRED, ours=True, since=NOW, started=NOW, pods=pods, target="560")
    assert answer.patch.unschedulable is True


def test_a_request_is_taken_off_when_its_node_is_admitted_and_remembered() -> None:
    asked_for = node(state=Q, remembers=record(Q), annotations={names.UPGRADE_REQUESTED: "true"})
    answer = ask(asked_for, driver_pod(driver="560"), gpu_pod())
    assert answer.annotations == {names.UPGRADE_REQUESTED: None}
    assert answer.record.forced
    assert answer.entered == TO_EVICTION


@pytest.mark.weakness(18)
def test_a_request_waits_with_its_node() -> None:
    asked_for = node(state=Q, remembers=record(Q), annotations={names.UPGRADE_REQUESTED: "true"})
    assert ask(asked_for, driver_pod(), policy=BLOCKED).plan.actions == ()


def test_admission_forgets_failures_of_another_driver_and_counts_on_those_of_this_one() -> None:
    another = node(state=Q, remembers=record(Q, failed=State.DRAIN_REQUIRED, target="555"))
    assert ask(another, driver_pod(), gpu_pod()).record.failure is None
    this = node(state=Q, remembers=record(Q, failed=State.DRAIN_REQUIRED))
    failure = ask(this, driver_pod(), gpu_pod()).record.failure
    assert failure is not None
    assert failure.attempts == 1


def test_the_same_driver_under_another_template_is_only_restarted() -> None:
    waiting = node(state=Q, remembers=record(Q, target="550"))
    answer = ask(waiting, driver_pod(config_digest="d"), gpu_pod(), validator(), device_plugin(), digest="d")
    assert answer.entered == ["pod-restart-required"]
    assert answer.patch.unschedulable is True
    pods = (driver_pod().uid, validator().uid)
    expected = record(State.POD_RESTART_REQUIRED, ours=True, since=NOW, started=NOW, pods=pods, target="560", restart="d",
                      loaded="d")
    assert answer.record == expected
    assert answer.evicted == []
    (deletion,) = [action for action in answer.others if isinstance(action, DeletePod)]
    assert deletion.last_look == LastLook(module_holders=(device_plugin().uid,))


@pytest.mark.parametrize("plugin", [{"ready": False}, {"deleting": True}, {"template": 0}, {"template": 2}])
def test_a_mere_restart_waits_for_what_keeps_the_driver_loaded_under_gpu_pods(plugin: dict[str, Any]) -> None:
    there = (driver_pod(config_digest="d"), gpu_pod(), validator(), device_plugin(**plugin))
    answer = ask(node(state=Q, remembers=record(Q, target="550")), *there, digest="d")
    kept = plugin == {"template": 0}
    assert (answer.state, answer.reason) == ((State.POD_RESTART_REQUIRED, Reason.DRIVER_STOPPING) if kept
                                             else (Q, Reason.OPERANDS_STARTING))


def test_a_mere_restart_under_way_waits_too_and_evicts_nobody() -> None:
    view = under_way(State.POD_RESTART_REQUIRED, since=NOW - 60)
    view = msgspec.structs.replace(view, record=record(State.POD_RESTART_REQUIRED, ours=True, restart="d"))
    there = (driver_pod(config_digest="d"), gpu_pod(), validator())
    answer = ask(view, *there, device_plugin(ready=False), digest="d")
    assert (answer.plan.actions, answer.reason) == ((), Reason.OPERANDS_STARTING)
    assert ask(view, *there, digest="d").entered == ["upgrade-required"], "nobody has asked if its pods may go"


@pytest.mark.parametrize(("namespace", "phase", "evicts"), [
    (build.NAMESPACE, "Running", True), (build.NAMESPACE, "Failed", False), ("default", "Running", False)])
def test_pods_that_share_gpus_by_mps_leave_before_their_driver_pod_does(namespace: str, phase: str, evicts: bool) -> None:
    mps = build.pod(name="mps", owner="DaemonSet", namespace=namespace, phase=phase, labels={"app": names.MPS_DAEMON_APP})
    there = (driver_pod(config_digest="d"), validator(), device_plugin(), mps)
    assert ask(node(state=Q), *there, gpu_pod(), digest="d").entered == (TO_EVICTION if evicts else ["pod-restart-required"])
    assert ask(node(state=Q), *there, digest="d").entered == ["pod-restart-required"], "nobody uses the GPUs"


@pytest.mark.parametrize(("product", "count", "evicts"), [
    ("NVIDIA-A100-SXM4-80GB", "8", True), ("NVIDIA-A800-SXM4-80GB-MIG-1g.10gb", "56", True), ("Tesla-V100-SXM3-32GB", "16", True),
    ("NVIDIA-A100-SXM4-80GB", "", True), ("NVIDIA-A100-SXM4-80GB", "4", False), ("NVIDIA-A100-PCIE-40GB", "8", False),
    ("NVIDIA-H100-80GB-HBM3", "8", False), ("Tesla-V100-SXM2-32GB", "8", False), ("", "8", False)])
def test_pods_leave_before_a_fabric_manager_ends_that_aborts_their_jobs(product: str, count: str, evicts: bool) -> None:
    view = node(state=Q)
    view = msgspec.structs.replace(view, labels={**view.labels, names.GPU_PRODUCT: product, names.GPU_COUNT: count})
    there = (driver_pod(config_digest="d"), validator(), device_plugin())
    assert ask(view, *there, gpu_pod(), digest="d").entered == (TO_EVICTION if evicts else ["pod-restart-required"])
    assert ask(view, *there, digest="d").entered == ["pod-restart-required"], "nobody uses the GPUs"


def test_an_idle_node_is_merely_restarted_whatever_keeps_its_driver_loaded() -> None:
    answer = ask(node(state=Q), driver_pod(config_digest="d"), validator(), device_plugin(ready=False), digest="d")
    assert answer.entered == ["pod-restart-required"]


def test_a_mere_restart_leaves_a_foreign_cordon_where_it_is() -> None:
    answer = ask(node(state=Q, cordoned=True), driver_pod(config_digest="d"), digest="d")
    assert answer.patch.unschedulable is None
    assert answer.record.cordon is CordonOwner.OTHER
    assert answer.annotations == {names.INITIALLY_UNSCHEDULABLE: "true"}


FAILED_ONCE = node(state=Q, remembers=record(Q, failed=State.POD_DELETION_REQUIRED))


@pytest.mark.weakness(37)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((node(), []), (node(), [gpu_pod()])),
        ((node(), [gpu_pod(), gpu_pod(name="b")]), (FAILED_ONCE, [])),
        ((node(), [gpu_pod(priority=1000)]), (node(), [gpu_pod(name="a"), gpu_pod(name="b")])),
        ((node(), [gpu_pod(created=LONG_AGO)]), (node(), [gpu_pod(priority=1000, created=NOW)])),
        ((node(), [gpu_pod(created=NOW)]), (node(), [gpu_pod(created=LONG_AGO)])),
        ((node("n1"), [gpu_pod()]), (node("n2"), [gpu_pod()])),
    ],
    ids=["idle", "not failed before", "fewer pods", "lower priority", "less to lose", "by name"],
)
def test_who_takes_the_turn_first(first: tuple[NodeView, list[PodView]], second: tuple[NodeView, list[PodView]]) -> None:
    def key(view: NodeView, pods: list[PodView]) -> object:
        mine = [msgspec.structs.replace(pod, node=view.name) for pod in [driver_pod(), *pods]]
        return turn(facts(view, *mine))

    assert sorted([key(*second), key(*first)])[0] == key(*first) != key(*second)  # type: ignore[type-var]  # keys are tuples


def test_pods_of_a_node_that_is_only_restarted_do_not_count() -> None:
    mere_restart = facts(node("n9"), driver_pod("n9", config_digest="d"), gpu_pod("n9"), device_plugin("n9"), digest="d")
    assert turn(mere_restart)[3] == 0


def test_a_failure_with_another_target_does_not_count() -> None:
    view = node(state=Q, remembers=record(Q, failed=State.POD_DELETION_REQUIRED, target="555"))
    assert turn(facts(view, driver_pod()))[2] == 0


def test_who_waits_knows_its_place() -> None:
    plan = decide(build.fleet(4, state=Q, gpu_pods={1: 2, 2: 1}), policy(parallel=1), NOW)
    assert {name: status.turn for name, status in plan.nodes.items()} == {"n0": 0, "n3": 1, "n2": 2, "n1": 3}


@pytest.mark.parametrize("state", [State.NODE_MAINTENANCE_REQUIRED, State.POST_MAINTENANCE_REQUIRED])
def test_a_node_in_foreign_maintenance_is_left_alone_and_says_so(state: State) -> None:
    answer = ask(build.under_way(state), driver_pod(), gpu_pod())
    assert answer.plan.actions == ()
    assert answer.reason is Reason.MAINTENANCE
    assert answer.plan.counts.in_progress == 1


def test_a_node_that_is_skipped_is_not_pending_and_has_no_place_in_the_queue() -> None:
    skipped = node("n0", Q, remembers=record(Q), labels={names.UPGRADE_SKIP: "true"})
    waiting = node("n1", Q, remembers=record(Q))
    plan = decide(build.cluster([skipped, waiting], [driver_pod("n0"), driver_pod("n1")]), BLOCKED, NOW)
    assert plan.counts.pending == 1
    assert {name: status.turn for name, status in plan.nodes.items()} == {"n0": 0, "n1": 1}


def test_nodes_that_are_asked_for_again_come_after_those_that_need_a_driver_and_the_last_one_last() -> None:
    def asked(name: str, started: float, **rest: Any) -> NodeFacts:
        view = node(name, Q, remembers=record(Q, forced=True, started=started), **rest)
        return facts(view, driver_pod(name, "560"), validator(name))

    needs = facts(node("n9", Q, remembers=record(Q)), driver_pod("n9"), gpu_pod("n9"))
    cordoned = asked("n8", NOW, cordoned=True)
    nodes = [asked("n1", NOW - 60), asked("n2", NOW - 3600), cordoned, needs]
    assert [each.node.name for each in sorted(nodes, key=turn)] == ["n8", "n9", "n2", "n1"]
