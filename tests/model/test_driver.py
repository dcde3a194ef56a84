"""What is the driver's, and what uses the driver."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.model.driver import (
    driver_daemonsets,
    heeds_variable,
    is_driver_pod,
    is_ownerless,
    is_policys,
    revisions_of,
    uses_driver,
)
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, NodeView, Owner, PodView, RevisionView
from tests.build import NAMESPACE

COMPONENT = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
APP = {"app": names.DRIVER_APP}
DS, REPLICA_SET = Owner("DaemonSet", "d", "u"), Owner("ReplicaSet", "r", "u")
OF_A = {names.DRIVER_OWNER: "a"}


@pytest.mark.parametrize(("facts", "driver"), [
    ({"labels": APP, "owner": DS}, True),
    ({"labels": COMPONENT, "owner": DS}, True),
    ({"labels": COMPONENT, "orphan": True}, True),
    ({"labels": {"app": names.LEFT_DRIVER_APP}, "orphan": True}, True),
    ({"labels": {"app": "nvidia-gpu-driver-ubuntu22.04-1a", names.COMPONENT_LABEL: "edited"}, "owner": DS}, True),
    ({"labels": APP, "owner": REPLICA_SET}, False),
    ({"labels": {"app": "nvidia-dcgm"}, "owner": DS}, False),
])
def test_driver_pods_are_told_by_their_labels_and_by_who_may_own_them(facts: dict[str, Any], driver: bool) -> None:
    assert is_driver_pod(PodView(NAMESPACE, "p", **facts), NAMESPACE) is driver
    assert not is_driver_pod(PodView("other", "p", **facts), NAMESPACE)


@pytest.mark.parametrize(("facts", "driver", "policys"), [
    ({"labels": APP}, True, True),
    ({"selector": APP}, True, True),
    ({"labels": COMPONENT}, True, False),
    ({"labels": {"app": "mine"}, "node_selector": OF_A}, False, False),
])
def test_driver_daemonsets_are_told_by_their_labels(facts: dict[str, Any], driver: bool, policys: bool) -> None:
    ds, other = DaemonSetView(NAMESPACE, "d", **facts), DaemonSetView("other", "d", **facts)
    assert driver_daemonsets(Snapshot(NAMESPACE, daemonsets=(ds, other))) == [ds] * driver
    assert is_policys(ds) is policys


@pytest.mark.parametrize(("facts", "ownerless"), [
    ({"labels": COMPONENT, "node_selector": OF_A}, True),
    ({"labels": COMPONENT, "node_selector": OF_A, "owner": Owner("NVIDIADriver", "a", "u")}, False),
    ({"labels": COMPONENT}, False),
    ({"labels": {"app": "mine"}, "node_selector": OF_A}, False),
])
def test_what_a_gone_nvidia_driver_left_is_none_of_other_peoples_daemonsets(facts: dict[str, Any], ownerless: bool) -> None:
    assert is_ownerless(DaemonSetView(NAMESPACE, "d", **facts), NAMESPACE) is ownerless


def revision(hashed: str, number: int, pods: str = "") -> RevisionView:
    return RevisionView(NAMESPACE, f"d-{hashed}", owner_uid="u", revision=number, hash=hashed, pod_digest=pods)


def test_the_newest_revision_is_the_same_in_whatever_order_they_come() -> None:
    equal = [revision("a", 2), revision("b", 2), revision("c", 1)]
    assert {revisions_of("u", order).newest for order in (equal, equal[::-1])} == {equal[1]}
    assert revisions_of("other", equal).newest is None


def test_revisions_that_run_the_same_pods_count_as_the_newest() -> None:
    found = revisions_of("u", [revision("a", 1, "x"), revision("b", 2, "y"), revision("c", 3, "x")])
    assert (found.same, found.known) == (frozenset("ac"), frozenset("abc"))
    assert revisions_of("u", [revision("a", 1), revision("b", 2)]).same == {"b"}, "what is not known is equal to nothing"


@pytest.mark.parametrize(("facts", "uses", "without_variable"), [
    ({"uses_gpu": True}, True, True),
    ({"uses_gpu": True, "phase": "Succeeded"}, False, False),
    ({"holds": "hostPath /dev/nvidia0"}, True, True),
    ({"holds": f"{names.VISIBLE_DEVICES}=all"}, True, False),
    ({}, False, False),
])
def test_which_pods_use_the_driver(facts: dict[str, Any], uses: bool, without_variable: bool) -> None:
    pod = PodView("ml", "p", **facts)
    assert (uses_driver(pod, NAMESPACE, variable=True), uses_driver(pod, NAMESPACE, variable=False)) == (uses, without_variable)
    own = PodView(NAMESPACE, "p", **facts)
    assert uses_driver(own, NAMESPACE, variable=True) is (uses and own.uses_gpu), "our own pods hold the driver as it goes"


@pytest.mark.parametrize(("toolkit", "spared", "heeds"), [
    ("true", True, False), ("true", False, True), ("false", True, True), (None, True, True),
])
def test_a_variable_alone_counts_where_the_default_runtime_may_be_nvidias(toolkit: str | None, spared: bool, heeds: bool) -> None:
    labels = {} if toolkit is None else {names.DEPLOY_TOOLKIT: toolkit}
    assert heeds_variable(NodeView("n", labels=labels), spared) is heeds
