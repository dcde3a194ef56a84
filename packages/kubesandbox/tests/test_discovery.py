from __future__ import annotations

from typing import Any

import pytest

from kubesandbox.discovery import AGGREGATED
from sandbox_helpers.calls import CRDS, Caller, definition


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    found.ok("POST", CRDS, definition())
    return found


def test_plain_discovery(caller: Caller) -> None:
    assert caller.ok("GET", "/version")["gitVersion"].startswith("v1.")
    assert caller.ok("GET", "/api")["versions"] == ["v1"]
    groups = [group["name"] for group in caller.ok("GET", "/apis")["groups"]]
    assert groups[0] == "apps"
    assert "example.com" in groups
    assert caller.ok("GET", "/apis/example.com")["preferredVersion"] == {"groupVersion": "example.com/v1", "version": "v1"}
    listed = {one["name"]: one for one in caller.ok("GET", "/api/v1")["resources"]}
    assert listed["pods"]["shortNames"] == ["po"]
    assert listed["pods/eviction"]["group"] == "policy"
    assert "things/status" in {one["name"] for one in caller.ok("GET", "/apis/example.com/v1")["resources"]}
    assert caller.refused("GET", "/apis/nothing.com")[0] == 404
    assert caller.refused("GET", "/apis/apps/v9")[0] == 404


@pytest.mark.parametrize(("path", "group"), [("/api", ""), ("/apis", "example.com")])
def test_aggregated_discovery(caller: Caller, path: str, group: str) -> None:
    answer = caller.send("GET", path, accept=AGGREGATED + ",application/json")
    assert answer.content_type == AGGREGATED
    found = caller.ok("GET", path, accept=AGGREGATED)
    assert found["kind"] == "APIGroupDiscoveryList"
    [item] = [item for item in found["items"] if item["metadata"].get("name", "") == group]
    entries: list[Any] = item["versions"][0]["resources"]
    assert all(entry["responseKind"]["kind"] and entry["verbs"] for entry in entries)


def test_probes_and_openapi(caller: Caller) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        assert caller.send("GET", path).body == b"ok"
    paths = caller.ok("GET", "/openapi/v3")["paths"]
    assert {"api/v1", "apis/example.com/v1"} <= set(paths)
    document = caller.ok("GET", "/openapi/v3/apis/example.com/v1")
    assert document["components"]["schemas"]["com.example.v1.Thing"]["properties"]["spec"]
    parameters = document["paths"]["/apis/example.com/v1/things/{name}"]["patch"]["parameters"]
    assert "fieldValidation" in {one["name"] for one in parameters}
    assert caller.ok("GET", "/openapi/v2")["swagger"] == "2.0"


def test_access_reviews_allow_everything(caller: Caller) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get"}}}
    verdict = caller.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert verdict["status"]["allowed"] is True
    assert verdict["spec"] == body["spec"]
    user = caller.ok("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert user["status"]["userInfo"]["username"]
