"""What differs on purpose: each row of the table in docs/sandbox.md has its test here, of the same name."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TypeVar

import pytest

from gpuward.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    GVR,
    NAMESPACES,
    PODS,
    SERVICES,
)
from tests.contract.api import Api, Object
from tests.contract.crd_helpers import until_served
from tests.contract.objects import config_map, names, pod, workload
from tests.contract.test_budgets import evict

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"
PROTOBUF = "application/vnd.kubernetes.protobuf"
T = TypeVar("T")


def expected(api: Api, *, sandbox: T, real: T) -> T:
    """Return what this server does; both doing the same is no difference, and its row has to go."""
    assert sandbox != real
    return sandbox if api.kind == "sandbox" else real


def test_every_row_of_the_table_has_its_test_here() -> None:
    rows = re.findall(r"^\| `(test_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tests = [name for name, found in vars(sys.modules[__name__]).items() if "api" in getattr(found, "__annotations__", ())]
    assert rows == [name for name in tests if name.startswith("test_")]


def test_rights(api: Api) -> None:
    refused = expected(api, sandbox=False, real=True)
    api.kubectl("get", "pods", "--as", "nobody", fails=refused)
    assert api.kubectl("auth", "can-i", "create", "pods", "--as", "nobody", fails=refused) in ("yes\n", "")


def managers(obj: Object) -> set[tuple[str, str]]:
    """Return who owns fields of an object, and at which endpoint."""
    return {(one["manager"], one.get("subresource", "")) for one in obj["metadata"].get("managedFields") or ()}


def test_field_owners(api: Api) -> None:
    path = PODS.path(api.ns)
    made = api.made(path, pod("a", node="nowhere"), fieldManager="creator")
    assert managers(made) == expected(api, sandbox=set(), real={("creator", "")})
    label = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}}}
    applied = api.apply(f"{path}/a", label, "applier").body
    assert managers(applied) == {("applier", ""), (expected(api, sandbox="before-first-apply", real="creator"), "")}
    told = api.merge(f"{path}/a/status", {"status": {"phase": "Running"}}, fieldManager="kubelet").body
    assert managers(told) - managers(applied) == expected(api, sandbox=set(), real={("kubelet", "status")})


def test_keys_of_lists(api: Api) -> None:
    body = workload("Deployment", "w", replicas=0)
    body["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "protocol": "TCP"}]
    (fields,) = api.apply(f"{DEPLOYMENTS.path(api.ns)}/w", body).body["metadata"]["managedFields"]
    container = fields["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert set(container["f:ports"]) == expected(
        api, sandbox={'k:{"containerPort":80}'}, real={'k:{"containerPort":80,"protocol":"TCP"}'})


def definition(group: str, rule: str) -> Object:
    """Return the definition of widgets, whose `parts` have to keep a rule."""
    spec = {"type": "object", "properties": {"parts": {"type": "array", "maxItems": 9, "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": rule}]}
    return {"metadata": {"name": f"widgets.{group}"}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": spec}}}}]}}


def test_rules_of_definitions(api: Api) -> None:
    path, group = CUSTOM_RESOURCE_DEFINITIONS.path(), f"{api.ns}.example.com"
    assert api.post(path, definition(group, "self.parts."), dryRun="All").status == expected(api, sandbox=201, real=422)
    api.cluster_wide(path, definition(group, "self.parts.exists_one(x, x > 3)"))
    widgets = f"/apis/{group}/v1/namespaces/{api.ns}/widgets"
    until_served(api.server, widgets)
    body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"parts": [1]}}
    assert api.post(widgets, body).status == expected(api, sandbox=201, real=422)


def test_at_once(api: Api) -> None:
    group = f"{api.ns}.example.com"
    api.cluster_wide(CUSTOM_RESOURCE_DEFINITIONS.path(), definition(group, "true"))
    # 429 tells that its storage is being prepared.
    served = api.get(f"/apis/{group}/v1/namespaces/{api.ns}/widgets").status
    assert served in expected(api, sandbox={200}, real={200, 404, 429})
    inner = f"{api.ns}-inner"
    api.cluster_wide(NAMESPACES.path(), {"metadata": {"name": inner}})
    api.delete(NAMESPACES.path("", inner))
    assert api.get(NAMESPACES.path("", inner)).status == expected(api, sandbox=404, real=200)


@pytest.mark.parametrize(("resource", "body"), [
    (PODS, pod("a", hostAliases=[{"ip": "nonsense"}])),
    (SERVICES, {"metadata": {"name": "a"}, "spec": {"type": "ExternalName", "externalName": "not a name"}}),
])
def test_rare_rules(api: Api, resource: GVR, body: Object) -> None:
    assert api.post(resource.path(api.ns), body).status == expected(api, sandbox=201, real=422)


def test_service_accounts(api: Api) -> None:
    path = PODS.path(api.ns)
    volumes = api.made(path, pod("b"))["spec"].get("volumes") or ()
    assert [one["name"].startswith("kube-api-access-") for one in volumes] == expected(api, sandbox=[], real=[True])
    root = api.when(f"{CONFIG_MAPS.path(api.ns)}/kube-root-ca.crt", lambda one: True)
    assert ("BEGIN CERTIFICATE" in root["data"]["ca.crt"]) == expected(api, sandbox=False, real=True)


def test_events(api: Api) -> None:
    api.node()
    api.made(PODS.path(api.ns), pod("a", nodeSelector={"test": api.ns}))
    api.when(f"{PODS.path(api.ns)}/a", lambda one: one["status"]["phase"] == "Running")
    if expected(api, sandbox=False, real=True):
        api.until(EVENTS.path(api.ns), lambda found: any(one["reason"] == "Scheduled" for one in found))
    else:
        assert api.get(EVENTS.path(api.ns)).body["items"] == []


def test_evictions_of_another_pod(api: Api) -> None:
    # A name of its own: pods are soon collected from a node of which it has been known for a while that it is not there.
    api.made(PODS.path(api.ns), pod("a", node=f"nowhere-{api.ns}"))
    begun = time.monotonic()
    assert evict(api, "a", preconditions={"uid": "1234"}).status == 409
    assert (time.monotonic() - begun > 4) == expected(api, sandbox=False, real=True)


def test_old_lists(api: Api) -> None:
    path = CONFIG_MAPS.path(api.ns)
    version = api.made(path, config_map("a"))["metadata"]["resourceVersion"]
    api.made(path, config_map("b"))
    exact = api.get(path, resourceVersion=version, resourceVersionMatch="Exact")
    assert exact.status == expected(api, sandbox=410, real=200)
    first = api.get(path, limit=1).body["metadata"]["continue"]
    for number in range(64):
        api.made(path, config_map(f"a-{number}"))
        api.get(path, limit=1)
    assert api.get(path, limit=1, continue_=first).status == expected(api, sandbox=410, real=200)


@pytest.mark.parametrize("quantity", ["+1k", "010"])
def test_signs_and_zeros(api: Api, quantity: str) -> None:
    limits = {"limits": {"example.com/x": quantity}}
    made = api.made(PODS.path(api.ns), pod("a", containers=[{"name": "main", "image": "i", "resources": limits}]))
    stored = made["spec"]["containers"][0]["resources"]["limits"]["example.com/x"]
    assert (stored == quantity) == expected(api, sandbox=False, real=True)


def test_descriptions(api: Api) -> None:
    schemas = api.get("/openapi/v3/api/v1").body["components"]["schemas"]
    assert any("description" in schema for schema in schemas.values()) == expected(api, sandbox=False, real=True)
    assert bool(api.get("/openapi/v2").body.get("definitions")) == expected(api, sandbox=False, real=True)


def test_protobuf(api: Api) -> None:
    reply = api.server.raw("GET", PODS.path(api.ns), accept=f"{PROTOBUF},application/json")
    assert reply.headers["Content-Type"] == expected(api, sandbox="application/json", real=PROTOBUF)
    assert names(api.get(PODS.path(api.ns)).body) == []
