"""How an NVIDIADriver went whose DaemonSet is there, told by what else of it is there."""

from __future__ import annotations

from typing import Any

import pytest

from gpuward import names
from gpuward.model.actions import DeleteObject
from gpuward.model.departed import Departure, departure, removed_drivers, unseen_departures
from gpuward.model.owned import OwnedView
from gpuward.model.snapshot import Snapshot
from gpuward.model.views import DaemonSetView, Owner, PolicyView
from gpuward.operands.nvidiadriver.departing import departing

NAMESPACE, ACCOUNT = "gpu-operator", "nvidia-gpu-driver-a-ubuntu22.04"
LABELS = {names.COMPONENT_LABEL: names.DRIVER_COMPONENT}
ROLE = OwnedView("Role", NAMESPACE, ACCOUNT, "r")


def driver_set(**rest: Any) -> DaemonSetView:
    given: dict[str, Any] = {"uid": "ds-a", "labels": LABELS, "node_selector": {names.DRIVER_OWNER: "a"}, "account": ACCOUNT,
                             "upgrade_policy": "{}"}
    return DaemonSetView(NAMESPACE, "ds-a", **(given | rest))


def cluster(ds: DaemonSetView, *owned: OwnedView, drivers: tuple[PolicyView, ...] = (), **rest: Any) -> Snapshot:
    found = {(each.kind, each.namespace, each.name): each for each in owned}
    return Snapshot(NAMESPACE, {}, {}, (ds,), drivers=drivers, owned=found, **rest)


def role(**rest: Any) -> OwnedView:
    return OwnedView("Role", NAMESPACE, ACCOUNT, "r", **rest)


ACCOUNT_LEFT = OwnedView("ServiceAccount", NAMESPACE, ACCOUNT, "s")
GOING = PolicyView("a", "u", deleting=True)
NO_ROLES = {"Role": "forbidden"}


@pytest.mark.parametrize(("snapshot", "expected"), [
    (cluster(driver_set()), Departure.REMOVED),
    (cluster(driver_set(), role(deleting=True)), Departure.REMOVED),
    (cluster(driver_set(), ACCOUNT_LEFT), Departure.REMOVED),
    (cluster(driver_set(), role(owner_uid="u")), Departure.UNKNOWN),
    (cluster(driver_set(), unlisted=NO_ROLES), Departure.UNKNOWN),
    (cluster(driver_set(drivers_go=True), role()), Departure.REMOVED),
    (cluster(driver_set(drivers_go=True), unlisted=NO_ROLES), Departure.REMOVED),
    (cluster(driver_set(drivers_go=True, upgrade_policy="")), Departure.LEFT),
    (cluster(driver_set(), drivers=(GOING,)), Departure.UNKNOWN),
    (cluster(driver_set(), role(owner_uid="u"), drivers=(GOING,)), Departure.UNKNOWN),
    (cluster(driver_set(), role(), drivers=(GOING,)), Departure.LEFT),
    (cluster(driver_set(drivers_go=True), role(), drivers=(GOING,)), Departure.UNKNOWN),
    (cluster(driver_set(owner=Owner("NVIDIADriver", "a", "u")), role(), drivers=(GOING,)), Departure.UNKNOWN),
    (cluster(driver_set(owner=Owner("NVIDIADriver", "a", "u"))), Departure.UNKNOWN),
    (cluster(driver_set(), role()), Departure.LEFT),
    (cluster(driver_set(upgrade_policy="")), Departure.LEFT),
    (cluster(driver_set(), drivers=(PolicyView("a", "other"),)), None),
    (cluster(driver_set(deleting=True)), None),
    (cluster(driver_set(node_selector={})), None),
    (cluster(driver_set(), unlisted={"NVIDIADriver": "forbidden"}), None),
])
def test_it_is_told_by_its_role(snapshot: Snapshot, expected: Departure | None) -> None:
    (ds,) = snapshot.daemonsets
    assert departure(ds, snapshot) is expected
    assert removed_drivers(snapshot) == ({"a": ds} if expected is Departure.REMOVED and ds.drivers_go else {}), "noted first"


@pytest.mark.parametrize(("snapshot", "unseen"), [
    (cluster(driver_set(), unlisted=NO_ROLES), ["a"]),
    (cluster(driver_set()), ["a"]),
    (cluster(driver_set(drivers_go=True)), []),
    (cluster(driver_set(), role()), []),
    (cluster(driver_set(drivers_go=True), unlisted=NO_ROLES), []),
    (cluster(driver_set(), unlisted=NO_ROLES, drivers=(GOING,)), []),
    (cluster(driver_set(owner=Owner("NVIDIADriver", "a", "u")), unlisted=NO_ROLES), []),
    (cluster(driver_set(), role(owner_uid="u")), []),
])
def test_how_it_went_is_not_seen_before_it_is_noted_nor_where_roles_are_not(snapshot: Snapshot, unseen: list[str]) -> None:
    assert list(unseen_departures(snapshot)) == unseen


@pytest.mark.parametrize("at_once", [False, True])
def test_daemonsets_go_as_their_drivers_are_to_go(at_once: bool) -> None:
    (gone,), (left,) = (departing(cluster(driver_set(), *owned), at_once=at_once) for owned in ((), (role(),)))
    assert isinstance(gone, DeleteObject)
    assert isinstance(left, DeleteObject)
    assert (gone.orphan, gone.if_empty) == (not at_once, not at_once)
    assert left.orphan, "its pods run on, whoever asked for removals at once"
    assert departing(cluster(driver_set(), role(owner_uid="u")), at_once=at_once) == []


def test_a_daemonset_whose_drivers_are_to_go_stays_while_it_has_any() -> None:
    assert departing(cluster(driver_set(desired=1)), at_once=False) == []
