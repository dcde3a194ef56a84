"""Which NVIDIADriver a node is owned by, and what a node whose driver changes hands is labelled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuward import names
from gpuward.labels.decide import decide_labels
from gpuward.labels.policy import LabelPolicy
from gpuward.model.owners import Claim, KeepsOwner, NoOwner, OwnedBy, OwnerConflict, conflicts, owner_of
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import NodeView, PodView
from tests.build import driver_pod
from tests.labels.test_decide import READY

A, B, DEFAULT = Claim("a", {"pool": "a"}), Claim("b", {"zone": "x"}), Claim("default", default=True)
STATE, OWNER = names.UPGRADE_STATE, names.DRIVER_OWNER
IS_DRIVER = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
LEFT = msgspec.structs.replace(driver_pod(orphan=True), labels=IS_DRIVER)


def changes(labels: dict[str, str], *claims: Claim, pods: tuple[PodView, ...] = (), annotations: dict[str, str] | None = None,
            **policy: Any) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return what a GPU node's labels and annotations are changed to."""
    node = NodeView("n0", "uid", labels={**READY, **labels}, annotations=annotations or {})
    found = decide_labels(Snapshot("gpu-operator", {"n0": node}, {"n0": pods}), LabelPolicy(claims=claims, **policy), 0.0).patches
    return (dict(found[0].labels), dict(found[0].annotations)) if found else ({}, {})


@pytest.mark.parametrize(("labels", "owner"), [
    ({"pool": "a"}, OwnedBy("a")),
    ({"zone": "x"}, OwnedBy("b")),
    ({"zone": "y"}, OwnedBy("default")),
    ({"pool": "a", "zone": "x"}, OwnerConflict(("a", "b"), "n0")),
])
def test_who_selects_a_node_owns_it_and_else_the_default_does(labels: dict[str, str], owner: object) -> None:
    assert owner_of("n0", labels, (B, DEFAULT, A)) == owner


def test_without_a_default_nobody_owns_what_nobody_selects() -> None:
    assert owner_of("n0", {}, (A, B)) == NoOwner()


def test_an_empty_selector_selects_every_node() -> None:
    assert owner_of("n0", {"pool": "z"}, (Claim("all"), DEFAULT)) == OwnedBy("all")


@pytest.mark.parametrize(("labels", "owner"), [
    ({OWNER: "h"}, KeepsOwner()), ({OWNER: "h", names.GPU_PRODUCT: "T4"}, OwnedBy("default")), ({}, OwnedBy("default")),
    ({OWNER: "h", "zone": "x"}, OwnedBy("b")),
])
def test_a_node_whose_product_nobody_tells_while_its_driver_is_replaced_stays(labels: dict[str, str], owner: object) -> None:
    """GPU feature discovery takes its labels away while it does not run: the node would come and go with its own driver."""
    assert owner_of("n0", labels, (Claim("h", {names.GPU_PRODUCT: "H100"}), B, DEFAULT)) == owner


def test_a_label_that_people_gave_and_took_away_is_followed() -> None:
    assert owner_of("n0", {OWNER: "a"}, (A, DEFAULT)) == OwnedBy("default")


def test_two_defaults_own_nothing_and_others_go_on() -> None:
    claims = (A, DEFAULT, Claim("other", default=True))
    assert owner_of("n0", {}, claims) == OwnerConflict(("default", "other"))
    assert owner_of("n0", {"pool": "a"}, claims) == OwnedBy("a")


def test_one_that_cannot_be_followed_keeps_its_nodes_from_the_default() -> None:
    broken = Claim("a", {"pool": "a"}, valid=False)
    assert owner_of("n0", {"pool": "a", OWNER: "a"}, (broken, DEFAULT)) == KeepsOwner()
    assert owner_of("n0", {"pool": "a", "zone": "x", OWNER: "a"}, (broken, B)) == OwnedBy("b")


def test_a_conflict_concerns_those_that_are_in_it() -> None:
    claims = (A, B, Claim("c", {"pool": "c"}), DEFAULT)
    nodes = {"n2": {"pool": "a", "zone": "x"}, "n1": {"pool": "a", "zone": "x"}, "n0": {"pool": "a"}}
    found = conflicts((owner_of(name, labels, claims) for name, labels in nodes.items()), claims)
    assert set(found) == {"a", "b"}
    assert str(found["b"]) == "multiple NVIDIADrivers match the same node n1: [a b]"


def test_two_defaults_are_a_conflict_on_a_cluster_without_nodes_too() -> None:
    found = conflicts([], (DEFAULT, Claim("again", default=True)))
    assert {str(conflict) for conflict in found.values()} == {"multiple default NVIDIADrivers found: [again default]"}


def test_a_node_is_labelled_with_its_owner_and_annotated_by_its_policy() -> None:
    assert changes({"pool": "a"}, A) == ({OWNER: "a"}, {names.UPGRADE_ENABLED: "true"})
    off = Claim("a", {"pool": "a"}, auto_upgrade=False)
    on_before = {names.UPGRADE_ENABLED: "true"}
    assert changes({"pool": "a", OWNER: "a"}, off, annotations=on_before) == ({}, {names.UPGRADE_ENABLED: None})


def test_a_node_that_nobody_owns_any_more_loses_the_label_only() -> None:
    assert changes({OWNER: "a"}, A, annotations={names.UPGRADE_ENABLED: "true"}) == ({OWNER: None}, {})


@pytest.mark.parametrize(("before", "known"), [({OWNER: "b"}, {"uid-web": ""}), ({}, None)])
def test_where_a_driver_may_go_the_patch_is_for_the_pods_that_are_known(
    before: dict[str, str], known: dict[str, str] | None
) -> None:
    node = NodeView("n0", "uid", labels={**READY, "pool": "a", **before})
    web = PodView("ml", "web", uid="uid-web", node="n0")
    (patch,) = decide_labels(Snapshot("gpu-operator", {"n0": node}, {"n0": (web,)}), LabelPolicy(claims=(A,)), 0.0).patches
    assert (patch.labels[OWNER], patch.known_pods) == ("a", known)


def test_a_patch_is_for_the_labels_that_the_node_s_owner_follows_from() -> None:
    node = NodeView("n0", "uid", labels={**READY, "pool": "a", OWNER: "b"})
    (patch,) = decide_labels(Snapshot("gpu-operator", {"n0": node}), LabelPolicy(claims=(A, B)), 0.0).patches
    assert patch.expect_labels.items() >= {"pool": "a", "zone": None, names.DEPLOY_OPERANDS: None, names.NFD_KERNEL: None}.items()


def test_a_node_in_a_conflict_keeps_its_owner() -> None:
    node = {"pool": "a", "zone": "x", OWNER: "b"}
    assert changes(node, A, B, annotations={names.UPGRADE_ENABLED: "true"}) == ({}, {})


def test_sandbox_nodes_are_not_annotated() -> None:
    assert changes({"pool": "a"}, A, sandbox_workloads=True) == ({OWNER: "a"}, {})


def test_without_nvidia_drivers_the_owner_stays_as_it_is() -> None:
    node = NodeView("n0", "uid", labels={**READY, OWNER: "a"})
    assert decide_labels(Snapshot("gpu-operator", {"n0": node}), LabelPolicy(), 0.0).patches == ()


@pytest.mark.parametrize(("state", "claim", "wanted"), [
    ("", A, True), ("upgrade-done", A, True), ("upgrade-failed", A, False), ("drain-required", A, False),
    ("", Claim("a", {"pool": "a"}, auto_upgrade=False), False), ("", B, False),
])
def test_a_driver_that_was_left_behind_is_upgraded(state: str, claim: Claim, wanted: bool) -> None:
    labels, _ = changes({"pool": "a", **({STATE: state} if state else {})}, claim, pods=(LEFT,))
    assert labels.get(STATE) == ("upgrade-required" if wanted else None)


def test_a_driver_that_has_its_daemon_set_is_not() -> None:
    owned = msgspec.structs.replace(driver_pod(), labels=IS_DRIVER)
    assert STATE not in changes({"pool": "a"}, A, pods=(owned,))[0]


def test_a_node_with_an_owner_keeps_it_while_owners_stay() -> None:
    assert changes({"pool": "a", OWNER: "b"}, A, owners_stay=True)[0] == {}
    assert changes({"pool": "a"}, A, owners_stay=True)[0] == {OWNER: "a"}
