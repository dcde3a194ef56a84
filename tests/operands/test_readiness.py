"""When a DaemonSet counts as ready."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.model.taints import Taint, Toleration
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView, RevisionView
from gpuward.operands import daemonset_ready, waits_for

READY = DaemonSetView("n", "d", uid="d1", generation=2, observed_generation=2, desired=3, updated=3, available=3)
DRIVER = msgspec.structs.replace(READY, on_delete=True, updated=0)
REVISIONS = (
    RevisionView("n", "d-old", owner_uid="d1", revision=1, hash="old"),
    RevisionView("n", "d-new", owner_uid="d1", revision=3, hash="new"),
    RevisionView("n", "e-x", owner_uid="e1", revision=9, hash="other"),
)


def pod(name: str, revision: str = "new", *, ready: bool = True, owner: str = "d1") -> PodView:
    return PodView("n", name, labels={"controller-revision-hash": revision}, phase="Running", ready=ready,
                   owner=Owner("DaemonSet", "d", owner))


@pytest.mark.parametrize(("changes", "reason"), [
    ({}, ""),
    ({"unavailable": 1, "available": 2}, "1 of 3 pods are unavailable"),
    ({"generation": 3}, "the DaemonSet controller has not seen the newest template"),
    ({"updated": 1}, "1 of 3 pods have the newest template"),
    ({"available": 2}, "2 of 3 pods are available"),
    ({"desired": 0, "unavailable": 0}, ""),
    ({"desired": 0, "generation": 9, "unavailable": 0}, "the DaemonSet controller has not seen the newest template"),
])
def test_rolling_daemon_set(changes: dict[str, Any], reason: str) -> None:
    daemon_set = msgspec.structs.replace(READY, **changes)
    assert waits_for(daemon_set) == reason
    assert daemonset_ready(daemon_set) == (not reason)


@pytest.mark.parametrize(("pods", "revisions", "reason"), [
    ([pod("a"), pod("b"), pod("c")], REVISIONS, ""),
    ([pod("a"), pod("b", "old"), pod("c")], REVISIONS, "1 of 3 pods have an older template"),
    ([pod("a"), pod("b", ready=False), pod("c")], REVISIONS, "1 of 3 pods are not ready"),
    ([pod("a"), pod("b"), pod("c"), pod("d", "other", owner="e1")], REVISIONS, ""),
    ([pod("a"), pod("b")], REVISIONS, "2 of 3 pods exist"),
    ([pod("b", owner="e1")], REVISIONS, "0 of 3 pods exist"),
    ([], REVISIONS, "0 of 3 pods exist"),
    ([pod("a")], REVISIONS[2:], "the DaemonSet has no ControllerRevision"),
])
def test_on_delete_daemon_set_is_judged_by_its_pods(pods: list[PodView], revisions: tuple[RevisionView, ...],
                                                    reason: str) -> None:
    assert waits_for(DRIVER, pods, revisions) == reason


def test_of_two_revisions_with_one_number_the_upgrades_target_counts() -> None:
    twins = (RevisionView("n", "d-z", owner_uid="d1", revision=3, hash="z"), *REVISIONS)
    pods = [pod(name, "z") for name in "abc"]
    assert waits_for(DRIVER, pods, twins) == waits_for(DRIVER, pods, twins[::-1]) == ""


def test_on_delete_daemon_set_with_unavailable_pods() -> None:
    daemon_set = msgspec.structs.replace(DRIVER, unavailable=1)
    assert waits_for(daemon_set, [pod("a")], REVISIONS) == "1 of 3 pods are unavailable"


ROLLING = msgspec.structs.replace(READY, desired=4, updated=1, unavailable=1, available=3, max_unavailable="1")


def on(node: str, revision: str = "old", *, ready: bool = True, **rest: Any) -> PodView:
    return msgspec.structs.replace(pod(node, revision, ready=ready), node=node, **rest)


def labelled(state: str, *, ready: bool = True) -> NodeView:
    return NodeView("n1", labels={names.UPGRADE_STATE: state} if state else {}, ready=ready)


HELD = "3 of 4 pods have an older template, and wait for the one that is not ready"


@pytest.mark.parametrize(("node", "why"), [
    (labelled("pod-restart-required"), "its driver is being upgraded"),
    (labelled("upgrade-failed"), "its driver upgrade has failed"),
    (labelled("upgrade-required"), "it waits for its driver upgrade"),
    (labelled("upgrade-done", ready=False), "the node is not Ready"),
    (labelled("", ready=False), "the node is not Ready"),
])
def test_a_template_that_waits_for_a_node_names_it(node: NodeView, why: str) -> None:
    pods = [on("n1", "new", ready=False), on("n2"), on("n3"), on("n4")]
    assert waits_for(ROLLING, pods, REVISIONS, [node]) == f"{HELD} (n1: {why})"
    one = [*pods[:2], on("n3", "new"), on("n4", "new")]
    assert waits_for(msgspec.structs.replace(ROLLING, updated=3), one, REVISIONS, [node]) == (
        f"1 of 4 pods has an older template, and waits for the one that is not ready (n1: {why})")


def test_of_many_nodes_that_are_waited_for_the_first_are_named() -> None:
    pods = [*(on(f"n{each}", "new", ready=False) for each in range(5)), on("n8"), on("n9")]
    nodes = [NodeView(f"n{each}", ready=False) for each in range(5)]
    many = msgspec.structs.replace(ROLLING, desired=7, updated=5, unavailable=5, max_unavailable="50%")
    assert waits_for(many, pods, REVISIONS, nodes) == (
        "2 of 7 pods have an older template, and wait for the 5 that are not ready (n0: the node is not Ready, n1: the node is "
        "not Ready, n2: the node is not Ready and 2 more)")


@pytest.mark.parametrize(("waiting", "waits"), [("CrashLoopBackOff", HELD), ("", "1 of 4 pods are unavailable")])
def test_a_template_waits_for_a_pod_in_trouble_but_goes_on_after_one_that_starts(waiting: str, waits: str) -> None:
    pods = [on("n1", "new", ready=False, waiting=waiting), on("n2"), on("n3"), on("n4")]
    assert waits_for(ROLLING, pods, REVISIONS, [labelled("upgrade-done")]) == waits


@pytest.mark.parametrize("changes", [
    {"max_unavailable": "2"}, {"max_unavailable": "50%"}, {"on_delete": True}, {"updated": 4}, {"generation": 3}])
def test_a_template_that_comes_to_other_nodes_waits_for_none(changes: dict[str, Any]) -> None:
    pods = [on("n1", "new", ready=False), on("n2"), on("n3"), on("n4")]
    daemon_set = msgspec.structs.replace(ROLLING, **changes)
    assert "older template" not in waits_for(daemon_set, pods, REVISIONS, [labelled("pod-restart-required")])


def test_missing_daemon_set() -> None:
    assert waits_for(None) == "the DaemonSet does not exist"


GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
LABELLED = NodeView("n", labels={"wanted": "true"}, ready=True)


@pytest.mark.parametrize(("changes", "counts"), [
    ({}, True),
    ({"labels": {}}, False),
    ({"taints": (GPU_TAINT,)}, True),
    ({"taints": (Taint("team", "a", "NoSchedule"),)}, False),
    ({"taints": (Taint("team", "a", "PreferNoSchedule"),)}, True),
    ({"taints": (Taint("nvidia.com/gpu", "present", "NoExecute"),)}, False),
    ({"ready": False}, False),
    ({"ready": None}, False),
    ({"unschedulable": True}, True),
    ({"deleting": True}, False),
])
def test_a_node_that_is_labelled_is_waited_for_until_the_controller_counts_it(changes: dict[str, Any], counts: bool) -> None:
    labelled = msgspec.structs.replace(LABELLED, **changes)
    lagging = msgspec.structs.replace(READY, desired=0, updated=0, available=0, node_selector={"wanted": "true"},
                                      tolerations=(Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),))
    reason = "the DaemonSet controller has counted 0 of 1 nodes" if counts else ""
    assert waits_for(lagging, nodes=[labelled]) == reason
    assert not waits_for(msgspec.structs.replace(lagging, tolerations=None), nodes=[labelled])
    counted = msgspec.structs.replace(lagging, desired=1, updated=1, available=1)
    assert not waits_for(counted, nodes=[labelled])


@pytest.mark.parametrize(("toleration", "covers"), [
    (Toleration("nvidia.com/gpu", "Exists"), True), (Toleration(operator="Exists"), True),
    (Toleration("nvidia.com/gpu", value="present"), True), (Toleration("nvidia.com/gpu", "Equal", "present", "NoSchedule"), True),
    (Toleration("nvidia.com/gpu", value="absent"), False), (Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False),
    (Toleration("nvidia.com/gpu", "Gt", "1"), False), (Toleration("other", "Exists"), False), (Toleration(), False),
])
def test_what_a_toleration_covers(toleration: Toleration, covers: bool) -> None:
    assert toleration.covers(GPU_TAINT) is covers
