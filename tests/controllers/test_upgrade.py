"""What the upgrade controller says: a line per state entered, and one per node passed over."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import structlog.testing

from gpuward.controllers.interest import Interest
from gpuward.controllers.metrics import Metrics
from gpuward.controllers.upgrade import UpgradeController
from gpuward.kube.client import Client
from gpuward.kube.cluster import Cluster
from gpuward.model.actions import EvictPod, PatchNode
from gpuward.model.plan import Counts, Hold, NodeStatus, Plan, Reason
from gpuward.model.snapshot import Snapshot
from gpuward.model.states import State
from gpuward.model.views import Owner, PodView, Ref
from gpuward.policy.clusterpolicy import PolicyReader
from gpuward.policy.nvidiadrivers import DriverReader
from gpuward.ports import Outcome
from gpuward.sandbox.api import ApiServer
from gpuward.sandbox.store import Store
from gpuward.sandbox.transport import InProcessTransport

NODE = Ref("", "n1", "uid-n1")
POD = Ref("ml", "train", "uid-train")


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def controller(*, listed: bool = True) -> UpgradeController:
    """Return a controller over a cluster whose pods have been listed, or not yet."""
    client = Client(InProcessTransport(ApiServer(Store(lambda: 0.0))))
    cluster, reader = Cluster(client, "ns", random=Random(0)), DriverReader(PolicyReader())
    if listed:
        cluster.pods.listing().commit("1")
    return UpgradeController(reader, Interest(cluster, reader), Metrics())


def held(*reasons: Reason) -> Plan:
    args = {"label": "x", "used": 1, "limit": 1, "nodes": ""}
    nodes = {f"n{1 + number}": NodeStatus(State.UPGRADE_REQUIRED, 0, Hold(reason, args)) for number, reason in enumerate(reasons)}
    return Plan(nodes=nodes)


def test_a_state_entered_is_one_line_with_all_states_passed(log: list[Any]) -> None:
    patch = PatchNode(NODE, entered=(State.CORDON_REQUIRED, State.WAIT_FOR_JOBS_REQUIRED), why="a -> b")
    controller().report(Snapshot("ns"), Plan(), [Outcome(patch), Outcome(patch, error="no"), Outcome(patch, dropped=True)])
    assert log == [{"event": "Updated node state", "log_level": "info", "node": "n1", "change": "a -> b",
                    "states": ["cordon-required", "wait-for-jobs-required"], "source": "controllers.Upgrade"}]


def test_evictions_and_their_refusals_are_told(log: list[Any]) -> None:
    action = EvictPod(POD, "n1")
    controller().report(Snapshot("ns"), Plan(), [Outcome(action), Outcome(action, error="budget")])
    assert [(line["event"], line["pod"], line.get("error")) for line in log] == [
        ("Evicted pod", "ml/train", None), ("Eviction refused", "ml/train", "budget")]


def test_a_node_passed_over_is_warned_of_once_each_time_that_it_begins(log: list[Any]) -> None:
    upgrade = controller()
    for plan in (held(Reason.SKIPPED), held(Reason.SKIPPED), Plan(), held(Reason.SKIPPED), held(Reason.NODE_NOT_READY)):
        upgrade.report(Snapshot("ns"), plan, [])
    assert [line["reason"].split(":")[0] for line in log] == ["left alone", "left alone", "the node is not Ready"]
    assert {(line["event"], line["node"]) for line in log} == {("Skipping node", "n1")}
    assert {line["log_level"] for line in log} == {"warning"}


def test_waiting_for_a_turn_is_no_warning(log: list[Any]) -> None:
    controller().report(Snapshot("ns"), held(Reason.PARALLEL_LIMIT, Reason.UNAVAILABLE_LIMIT, Reason.EVICTING), [])
    assert log == []


def test_a_driver_pod_that_the_scheduler_cannot_place_is_named(log: list[Any]) -> None:
    pod = PodView("ns", "driver-x", labels={"app": "nvidia-driver-daemonset"}, owner=Owner("DaemonSet", "d", "u"))
    placed = Snapshot("ns", pods={"": (pod,)})
    stuck = Snapshot("ns", pods={"": (PodView("ns", "driver-x", labels=pod.labels, owner=pod.owner, waiting="Unschedulable"),)})
    upgrade = controller()
    for snapshot in (placed, stuck, stuck):
        upgrade.report(snapshot, Plan(), [])
    assert [(line["event"], line["pod"]) for line in log] == [("Skipping pod", "driver-x")]


def test_the_metrics_are_those_of_the_plan() -> None:
    upgrade = controller()
    upgrade.report(Snapshot("ns"), Plan(counts=Counts(9, 1, 2, 3, 4, 5, 6), auto_upgrade=True), [])
    text = upgrade._metrics.text().decode()
    for line in ("nodes_upgrades_in_progress 1.0", "nodes_upgrades_done 2.0", "nodes_upgrades_failed 3.0",
                 "nodes_upgrades_available 4.0", "nodes_upgrades_pending 5.0", "driver_auto_upgrade_enabled 1.0"):
        assert f"gpu_operator_{line}\n" in text


def test_nothing_is_done_while_the_pods_that_matter_are_not_known() -> None:
    upgrade = controller(listed=False)
    upgrade.plan = Plan(actions=(EvictPod(POD, "n1"),), nodes=held(Reason.EVICTING).nodes, wake_at=5.0)
    plan = upgrade.decide(Snapshot("ns"), 1.0)
    assert (plan.actions, plan.wake_at) == ((), None)
    assert plan.nodes == upgrade.plan.nodes
