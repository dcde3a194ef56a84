"""When the maintenance of a node is asked for, and what is said of it."""

from __future__ import annotations

import msgspec
import pytest

from gpuward import names
from gpuward.model.maintenance import (
    LONGEST_NAME,
    MaintenanceView,
    asks,
    how_far,
    maintenance_body,
    maintenance_name,
    may_be_emptied,
)
from gpuward.model.record import CordonOwner, Record
from gpuward.model.states import IN_PROGRESS, MAINTENANCE, UNDISTURBED, State
from gpuward.model.views import NodeView
from gpuward.wire.maintenances import maintenance_view

UNDER_WAY = IN_PROGRESS - MAINTENANCE - {State.CORDON_REQUIRED}


def node(state: State, *, cordoned: bool = True, **record: object) -> NodeView:
    known = msgspec.structs.replace(Record(state, cordon=CordonOwner.GPUWARD), **record)
    return NodeView("n", labels={names.UPGRADE_STATE: str(state)}, unschedulable=cordoned, record=known)


@pytest.mark.parametrize("state", sorted(State))
def test_it_is_asked_for_from_the_cordon_to_the_end(state: State) -> None:
    assert asks(node(state)) is (state in UNDER_WAY)
    assert not asks(node(state, cordoned=False)), "the maintenance operator would cordon it"
    assert not asks(node(state, restart="digest")), "its pods run on"
    assert asks(node(state, paused=5.0)) is (state in UNDER_WAY - UNDISTURBED)


def test_one_that_was_asked_for_is_kept_where_somebody_lifts_the_cordon() -> None:
    annotations = {names.NODE_MAINTENANCE: "ready"}
    noted = msgspec.structs.replace(node(State.POD_RESTART_REQUIRED, cordoned=False), annotations=annotations)
    assert asks(noted)
    assert may_be_emptied(noted.annotations)


def test_names_fit() -> None:
    assert maintenance_name("a") == "gpuward-a"
    long = {maintenance_name("a" * 250 + letter) for letter in "bc"}
    assert len(long) == 2
    assert all(len(name) <= LONGEST_NAME for name in long)


def phase(reason: str, message: str = "") -> dict[str, object]:
    return {"conditions": [{"type": "Other"}, {"type": "Ready", "reason": reason, "message": message}]}


@pytest.mark.parametrize(("status", "deleting", "requestor", "told"), [
    (None, False, "gpuward.io", "no maintenance operator has taken it up"),
    (phase("Pending"), False, "gpuward.io", "it is Pending"),
    (phase("RequestorFailed", "x"), False, "gpuward.io", "it is RequestorFailed (x)"),
    (phase("Ready"), True, "gpuward.io", "the last one is still being deleted"),
    (phase("Ready"), False, "net", "it is the one of net"),
])
def test_how_far_it_is(status: object, deleting: bool, requestor: str, told: str) -> None:
    body = maintenance_body("n", "ns")
    body["spec"]["requestorID"] = requestor
    body["metadata"] |= {"uid": "u", "resourceVersion": "1"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})
    found = maintenance_view(msgspec.json.encode(body | ({"status": status} if status else {})))
    assert (found.node, found.name, how_far(found), found.ready) == ("n", "gpuward-n", told, False)
    assert how_far(None) == "it is not there yet"


def test_it_is_ready_by_the_reason_of_its_condition() -> None:
    assert MaintenanceView("ns", "gpuward-n", requestor="gpuward.io", phase="Ready").ready
