"""What kubectl asks before anything else: versions, resources, schemas, tables; and events and leases."""

from __future__ import annotations

import pytest

from gpuward.kube.resources import EVENTS, LEASES, NODES, PODS
from tests.contract.api import Api
from tests.contract.objects import event, names, pod

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.since("1.36")
def test_the_version(api: Api) -> None:
    found = api.get("/version").body
    assert (found["major"], found["minor"]) == ("1", "36")
    assert found["gitVersion"].startswith("v1.36.3")


@pytest.mark.parametrize(("path", "plural", "kind", "namespaced", "short"), [
    ("/api/v1", "pods", "Pod", True, ["po"]), ("/api/v1", "nodes", "Node", False, ["no"]),
    ("/apis/apps/v1", "daemonsets", "DaemonSet", True, ["ds"]),
    ("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ["pdb"]),
    ("/apis/coordination.k8s.io/v1", "leases", "Lease", True, None),
])
def test_resource_lists(api: Api, path: str, plural: str, kind: str, namespaced: bool, short: list[str] | None) -> None:
    listed = api.get(path).body
    assert listed["kind"] == "APIResourceList"
    one = next(each for each in listed["resources"] if each["name"] == plural)
    assert (one["kind"], one["namespaced"], one.get("shortNames"), one["singularName"]) == (kind, namespaced, short, kind.lower())
    assert set(one["verbs"]) == {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


def test_subresources_are_listed(api: Api) -> None:
    listed = {one["name"]: one for one in api.get("/api/v1").body["resources"]}
    assert (listed["pods/eviction"]["kind"], listed["pods/eviction"]["group"], listed["pods/eviction"]["version"]) == (
        "Eviction", "policy", "v1")
    assert set(listed["nodes/status"]["verbs"]) == {"get", "patch", "update"}


@pytest.mark.since("1.32")
def test_groups_and_the_aggregated_form(api: Api) -> None:
    groups = {one["name"]: one for one in api.get("/apis").body["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert api.get("/apis/apps").body["kind"] == "APIGroup"
    assert api.get("/api").body["versions"] == ["v1"]
    found = api.server.raw("GET", "/apis", accept=AGGREGATED).body
    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    apps = next(one for one in found["items"] if one["metadata"]["name"] == "apps")["versions"][0]
    (sets,) = (one for one in apps["resources"] if one["resource"] == "daemonsets")
    assert (sets["responseKind"]["kind"], sets["scope"], sets["shortNames"], sets["singularResource"]) == (
        "DaemonSet", "Namespaced", ["ds"], "daemonset")
    assert [one["subresource"] for one in sets["subresources"]] == ["status"]


def test_openapi_lists_what_it_documents(api: Api) -> None:
    paths = api.get("/openapi/v3").body["paths"]
    assert {"api/v1", "apis/apps/v1"} <= set(paths)
    document = api.get("/openapi/v3/apis/apps/v1").body
    assert document["openapi"].startswith("3.0")
    schemas = document["components"]["schemas"]
    (sets,) = (one for one in schemas.values() if {"group": "apps", "version": "v1", "kind": "DaemonSet"} in one.get(
        "x-kubernetes-group-version-kind", ()))
    assert set(sets["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"]["patch"]
    assert {"fieldValidation", "dryRun"} <= {one["name"] for one in patch["parameters"]}


def test_tables(api: Api) -> None:
    node = api.node()
    api.made(PODS.path(api.ns), pod("a", node="nowhere"))
    table = api.table(PODS.path(api.ns)).body
    assert [(one["name"], one["priority"]) for one in table["columnDefinitions"]] == [
        ("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0), ("IP", 1), ("Node", 1), ("Nominated Node", 1),
        ("Readiness Gates", 1)]
    assert table["rows"][0]["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert table["rows"][0]["cells"][5:] == ["<none>", "nowhere", "<none>", "<none>"]
    api.merge(NODES.path("", node), {"spec": {"unschedulable": True}})
    row = api.table(NODES.path("", node)).body["rows"][0]
    assert row["cells"][:3] == [node, "Ready,SchedulingDisabled", "<none>"]
    assert "spec" not in row["object"]
    assert "spec" in api.table(NODES.path("", node), includeObject="Object").body["rows"][0]["object"]
    assert api.table(NODES.path("", node), includeObject="None").body["rows"][0]["object"] is None


def test_metadata_alone(api: Api) -> None:
    api.made(PODS.path(api.ns), pod("a", node="nowhere", labels={"x": "y"}))
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
    found = api.server.raw("GET", PODS.path(api.ns), accept=accept).body
    assert (found["kind"], names(found)) == ("PartialObjectMetadataList", ["a"])
    assert "spec" not in found["items"][0]


def test_events_in_both_groups(api: Api) -> None:
    made = api.made(EVENTS.path(api.ns), event("a", api.ns, count=1, firstTimestamp="2026-01-01T00:00:00Z"))
    assert (made["source"], made["reportingComponent"], made["eventTime"]) == ({"component": "test"}, "", None)
    newer = api.get(f"/apis/events.k8s.io/v1/namespaces/{api.ns}/events/a").body
    assert (newer["regarding"]["name"], newer["note"], newer["deprecatedCount"]) == ("p", "a test", 1)
    about = "involvedObject.kind=Pod,involvedObject.name=p,reason=Tested"
    assert names(api.get(EVENTS.path(api.ns), fieldSelector=about).body) == ["a"]
    assert names(api.get(EVENTS.path(api.ns), fieldSelector="involvedObject.name=q").body) == []
    more = api.merge(f"{EVENTS.path(api.ns)}/a", {"count": 2, "lastTimestamp": "2026-01-01T00:00:01Z"}).body
    assert (more["count"], more["lastTimestamp"]) == (2, "2026-01-01T00:00:01Z")


def test_an_event_belongs_where_its_object_is(api: Api) -> None:
    refused = api.post(EVENTS.path(api.ns), event("a", "elsewhere"))
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", "involvedObject.namespace")})


def test_a_lease_is_taken_by_version(api: Api) -> None:
    path = LEASES.path(api.ns)
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15,
                                                 "renewTime": "2026-01-01T00:00:00.000000Z"}}
    made = api.made(path, body)
    assert made["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
    taken = api.put(f"{path}/l", {**made, "spec": {**made["spec"], "holderIdentity": "two"}})
    assert taken.body["spec"]["holderIdentity"] == "two"
    assert api.put(f"{path}/l", {**made, "spec": {**made["spec"], "holderIdentity": "three"}}).status == 409
    blind = api.put(f"{path}/l", body)
    assert (blind.status, blind.causes) == (422, {("FieldValueInvalid", "metadata.resourceVersion")})
    refused = api.merge(f"{path}/l", {"spec": {"leaseDurationSeconds": 0}})
    assert (refused.status, refused.causes) == (422, {("FieldValueInvalid", "spec.leaseDurationSeconds")})
