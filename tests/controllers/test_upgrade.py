"""What the upgrade controller says: a line per state entered, and one per node passed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
import structlog.testing

from gpuward import names
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.upgrade import UpgradeController, UpgradeLog
from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.passes import Outcome, Pass
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan
from gpuward.model.policy import UpgradePolicy
from gpuward.model.reasons import Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import Owner, PodView, Ref
from gpuward.model.waits import Plain
from gpuward.policy.nvidiadrivers import PoliciesInForce, PolicyReader
from gpuward.policy.pods import selections
from tests import build
from tests.waits import held_by

NODE = Ref("", "n1", "uid-n1")
POD = Ref("ml", "train", "uid-train")
HERE = Snapshot("ns")


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def told(*plans: Plan, about: Snapshot = HERE, outcomes: Sequence[Outcome] = ()) -> None:
    """Let the log take passes, one for each plan, and all actions end in the same way."""
    take = UpgradeLog()
    for plan in plans or (Plan(),):
        take(passed(plan, about, outcomes))


def passed(plan: Plan, about: Snapshot = HERE, outcomes: Sequence[Outcome] = ()) -> Pass[PoliciesInForce, Plan]:
    """Return a pass that decided a plan."""
    return Pass(about, PolicyReader().read(about), 1.0, plan, tuple(outcomes))


def held(*reasons: Reason) -> Plan:
    nodes = {f"n{1 + number}": NodeStatus(State.UPGRADE_REQUIRED, 0, held_by(reason)) for number, reason in enumerate(reasons)}
    return Plan(nodes=nodes)


def test_a_state_entered_is_one_line_with_all_states_passed(log: list[Any]) -> None:
    patch = PatchNode(NODE, entered=(State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED), why="a -> b")
    told(outcomes=[Outcome(patch), Outcome(patch, error="no"), Outcome(patch, dropped=True)])
    assert log == [{"event": "Node goes on to wait-for-jobs-required", "log_level": "info", "node": "n1", "change": "a -> b",
                    "states": ["cordon-required", "wait-for-jobs-required"], "source": "controllers.Upgrade"}]


def test_what_happens_to_many_nodes_at_once_is_one_line(log: list[Any]) -> None:
    patches = [PatchNode(Ref("", f"n{number}", "u"), entered=(State.DONE,), why="a -> b") for number in range(500)]
    about = build.cluster([], [build.driver_pod(patch.node.name) for patch in patches])
    told(about=about, outcomes=[Outcome(patch) for patch in patches])
    assert [(line["event"], line["nodes"], line["count"]) for line in log] == [
        ("500 nodes run the driver that is wanted", ["n0", "n1", "n2", "n3", "n4"], 500)]


def test_nodes_passed_over_for_one_reason_are_one_line(log: list[Any]) -> None:
    told(held(Reason.SKIPPED, Reason.SKIPPED, Reason.NODE_NOT_READY))
    assert [(line["event"], line.get("count", 1)) for line in log] == [("Skipping 2 nodes", 2), ("Node is held", 1)]


def test_a_failed_upgrade_is_a_warning(log: list[Any]) -> None:
    told(outcomes=[Outcome(PatchNode(NODE, entered=(State.FAILED,), why="a -> b"))])
    assert [(line["event"], line["log_level"]) for line in log] == [("Driver upgrade of node has failed", "warning")]


def test_evictions_and_their_refusals_are_told(log: list[Any]) -> None:
    action = EvictPod(POD, "n1")
    told(outcomes=[Outcome(action), Outcome(action, error="budget")])
    assert [(line["event"], line["pod"], line.get("error")) for line in log] == [
        ("Evicted pod", "ml/train", None), ("Eviction refused", "ml/train", "budget")]


def test_a_node_passed_over_is_warned_of_once_each_time_that_it_begins(log: list[Any]) -> None:
    told(held(Reason.SKIPPED), held(Reason.SKIPPED), Plan(), held(Reason.SKIPPED), held(Reason.NODE_NOT_READY))
    assert [line["reason"].split(":")[0] for line in log] == ["left alone", "left alone", "the node is not Ready"]
    assert [(line["event"], line["node"]) for line in log] == [*[("Skipping node", "n1")] * 2, ("Node is held", "n1")]
    assert {line["log_level"] for line in log} == {"warning"}


def test_nodes_that_are_deleted_in_mid_upgrade_are_one_line(log: list[Any]) -> None:
    there = build.cluster([build.node("n1"), build.node("n2"), build.node("n3")])
    states = {"n1": State.POD_RESTART_REQUIRED, "n2": State.POD_RESTART_REQUIRED, "n3": State.UPGRADE_REQUIRED}
    plan, take = Plan(nodes={name: NodeStatus(state, 0) for name, state in states.items()}), UpgradeLog()
    for about, decided in ((there, plan), (there, plan), (HERE, plan), (HERE, plan), (HERE, Plan())):
        take(passed(decided, about))
    assert [(line["event"], line["nodes"], line["state"]) for line in log] == [
        ("2 nodes were deleted in mid-upgrade", ["n1", "n2"], "pod-restart-required")]


def test_what_holds_the_rollout_as_a_whole_is_a_line_for_each_change(log: list[Any]) -> None:
    def fleet(*reasons: Reason, on: bool = True, state: State = State.UPGRADE_REQUIRED) -> Plan:
        nodes = {f"n{number}": NodeStatus(state, 0, held_by(reason)) for number, reason in enumerate(reasons)}
        return Plan(nodes=nodes, auto_upgrade=on, counts=Counts(2, 0, 0, 0))

    settling, shut = fleet(Reason.TEMPLATE_SETTLING, Reason.TEMPLATE_SETTLING), fleet(Reason.WINDOW_SHUT, Reason.WINDOW_SHUT)
    between, off = fleet(Reason.WINDOW_SHUT, Reason.PARALLEL_LIMIT), fleet(Reason.PAUSED, Reason.PAUSED, on=False)
    goes_on = fleet(Reason.EVICTING, state=State.POD_DELETION_REQUIRED)
    told(settling, shut, shut, between, shut, off, off, goes_on, goes_on, Plan())
    assert [(line["event"], line.get("reason", line.get("before"))) for line in log] == [
        ("Driver upgrade is held", "WindowShut"), ("Driver upgrade is held", "Paused"),
        ("Driver upgrade is held no longer", "Paused")]
    assert "windows" in log[0]["message"]


def test_a_driver_pod_that_is_not_made_is_a_warning_only_once_it_lasts(log: list[Any]) -> None:
    waits = [Plan(nodes={"n1": NodeStatus(State.POD_RESTART_REQUIRED, 0, Hold(Plain(Reason.DRIVER_POD_MISSING, lasts=lasts)))})
             for lasts in (False, True, True)]
    told(*waits)
    assert [(line["event"], line["log_level"]) for line in log] == [("Node is held", "warning")]


def test_waiting_for_a_turn_is_no_warning(log: list[Any]) -> None:
    told(held(Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.EVICTING))
    assert log == []


def test_a_driver_pod_that_the_scheduler_cannot_place_is_named(log: list[Any]) -> None:
    pod = PodView("ns", "driver-x", labels={"app": "nvidia-driver-daemonset"}, owner=Owner("DaemonSet", "d", "u"))
    placed = Snapshot("ns", pods={"": (pod,)})
    stuck = Snapshot("ns", pods={"": (PodView("ns", "driver-x", labels=pod.labels, owner=pod.owner, waiting="Unschedulable"),)})
    take = UpgradeLog()
    for snapshot in (placed, stuck, stuck):
        take(passed(Plan(), snapshot))
    assert [(line["event"], line["pod"]) for line in log] == [("Pod is held", "driver-x")]


def test_the_metrics_are_those_of_the_plan() -> None:
    metrics = Metrics()
    metrics.planned(passed(Plan(counts=Counts(9, 1, 2, 3, 4, 5, 6), auto_upgrade=True)))
    text = metrics.text().decode()
    for line in ("nodes_upgrades_in_progress 1.0", "nodes_upgrades_done 2.0", "nodes_upgrades_failed 3.0",
                 "nodes_upgrades_available 4.0", "nodes_upgrades_pending 5.0", "driver_auto_upgrade_enabled 1.0"):
        assert f"gpu_operator_{line}\n" in text


def test_a_node_that_fails_is_counted_once_it_is_written() -> None:
    metrics, patch = Metrics(), PatchNode(NODE, entered=(State.FAILED,), expect_labels={names.UPGRADE_STATE: "drain-required"})
    told_again = PatchNode(NODE, entered=(State.FAILED,), expect_labels={names.UPGRADE_STATE: None})
    outcomes = [Outcome(patch), Outcome(patch, error="no"), Outcome(patch, dropped=True), Outcome(told_again)]
    metrics.planned(passed(Plan(), outcomes=outcomes))
    assert "gpuward_driver_upgrade_failures_total 1.0\n" in metrics.text().decode()


def test_nothing_is_done_while_the_pods_that_matter_are_not_known() -> None:
    facts = build.cluster([build.node(state="upgrade-done")], [build.driver_pod(driver="560")])
    known = msgspec.structs.replace(facts, followed=selections([UpgradePolicy()]))
    upgrade, policies = UpgradeController(), PolicyReader().read(known)
    before = upgrade.decide(known, policies, build.NOW)
    plan = upgrade.decide(facts, policies, build.NOW)
    assert before.actions
    assert (plan.actions, plan.wake_at, plan.nodes) == ((), None, before.nodes)
