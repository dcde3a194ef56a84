"""Reads through the API: lists in pages, selections, forms of answers."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_helpers.calls import Caller

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    for number in range(5):
        found.pod(f"p{number}", node=f"n{number % 2}", labels={"even": str(number % 2 == 0).lower()})
    return found


def names(found: Any) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


def test_a_list_has_the_version_to_watch_from(caller: Caller) -> None:
    found = caller.ok("GET", "/api/v1/pods")
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert found["metadata"] == {"resourceVersion": str(caller.store.version)}
    assert names(found) == ["p0", "p1", "p2", "p3", "p4"]
    assert names(caller.ok("GET", "/api/v1/namespaces/kube-system/pods")) == []


@pytest.mark.parametrize(("query", "wanted"), [
    ({"labelSelector": "even=true"}, ["p0", "p2", "p4"]), ({"fieldSelector": "spec.nodeName=n1"}, ["p1", "p3"]),
    ({"fieldSelector": "spec.nodeName=n0,metadata.name!=p0", "labelSelector": "even"}, ["p2", "p4"]),
    ({"fieldSelector": "spec.nodeName="}, []), ({"fieldSelector": "metadata.name=p3"}, ["p3"]),
])
def test_selections(caller: Caller, query: dict[str, str], wanted: list[str]) -> None:
    assert names(caller.ok("GET", PODS, **query)) == wanted
    assert names(caller.ok("GET", "/api/v1/pods", **query)) == wanted


def test_pages_show_one_moment(caller: Caller) -> None:
    first = caller.ok("GET", PODS, limit=2)
    assert names(first) == ["p0", "p1"]
    assert first["metadata"]["remainingItemCount"] == 3
    caller.store.remove("pods", "default", "p2")
    second = caller.ok("GET", PODS, limit=2, **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["p2", "p3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = caller.ok("GET", PODS, limit=2, **{"continue": second["metadata"]["continue"]})
    assert names(third) == ["p4"]
    assert "continue" not in third["metadata"]


def test_pages_end_with_compaction(caller: Caller) -> None:
    token = caller.ok("GET", PODS, limit=2)["metadata"]["continue"]
    caller.pod("later")
    caller.store.compact(caller.store.version)
    assert caller.refused("GET", PODS, limit=2, **{"continue": token})[:2] == (410, "Expired")
    assert caller.refused("GET", PODS, **{"continue": "nonsense"})[0] == 400


@pytest.mark.parametrize(("query", "status"), [
    ({"resourceVersion": "999999"}, 504), ({"resourceVersion": "abc"}, 400),
    ({"resourceVersion": "1", "resourceVersionMatch": "Exact"}, 410),
    ({"labelSelector": "a b"}, 400), ({"fieldSelector": "spec.foo=1"}, 400), ({"limit": "x"}, 400),
])
def test_refused_lists(caller: Caller, query: dict[str, str], status: int) -> None:
    assert caller.refused("GET", PODS, **query)[0] == status


def test_any_older_version_will_do(caller: Caller) -> None:
    assert len(names(caller.ok("GET", PODS, resourceVersion="1"))) == 5
    assert len(names(caller.ok("GET", PODS, resourceVersion="0"))) == 5


def test_metadata_only(caller: Caller) -> None:
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = caller.ok("GET", PODS, accept=accept)
    assert found["kind"] == "PartialObjectMetadataList"
    assert set(found["items"][0]) == {"kind", "apiVersion", "metadata"}


def test_events_have_two_versions(caller: Caller) -> None:
    caller.ok("POST", "/api/v1/namespaces/default/events", {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "n"}, "reason": "R", "message": "told",
        "type": "Normal"})
    new = caller.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert (new["apiVersion"], new["note"], new["regarding"]["name"]) == ("events.k8s.io/v1", "told", "n")
    caller.ok("POST", "/apis/events.k8s.io/v1/namespaces/default/events", {
        "metadata": {"name": "f"}, "regarding": {"kind": "Node", "name": "n"}, "note": "again", "reason": "R", "action": "A",
        "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2024-01-01T00:00:00.000000Z"})
    old = caller.ok("GET", "/api/v1/namespaces/default/events/f")
    assert (old["apiVersion"], old["message"], old["involvedObject"]["name"]) == ("v1", "again", "n")
