from __future__ import annotations

import pytest

from kubesandbox import errors
from sandbox_helpers.calls import CRDS, Caller, definition


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    found.ok("POST", CRDS, definition())
    return found


@pytest.mark.parametrize(("path", "key", "namespace", "name", "subresource"), [
    ("/api/v1/nodes", "nodes", None, None, None),
    ("/api/v1/nodes/n/status", "nodes", None, "n", "status"),
    ("/api/v1/namespaces", "namespaces", None, None, None),
    ("/api/v1/namespaces/a", "namespaces", None, "a", None),
    ("/api/v1/namespaces/a/status", "namespaces", None, "a", "status"),
    ("/api/v1/namespaces/a/finalize", "namespaces", None, "a", "finalize"),
    ("/api/v1/namespaces/a/pods", "pods", "a", None, None),
    ("/api/v1/namespaces/a/pods/p/log", "pods", "a", "p", "log"),
    ("/apis/apps/v1/namespaces/a/daemonsets/d", "daemonsets.apps", "a", "d", None),
    ("/apis/events.k8s.io/v1/events", "events", None, None, None),
    ("/apis/example.com/v1/things/t", "things.example.com", None, "t", None),
])
def test_paths(caller: Caller, path: str, key: str, namespace: str | None, name: str | None, subresource: str | None) -> None:
    target = caller.api.catalog.target(path)
    assert (target.served.storage_key, target.namespace, target.name, target.subresource) == (key, namespace, name, subresource)


@pytest.mark.parametrize("path", [
    "/", "/nonsense", "/api/v2/pods", "/apis/apps/v1beta1/daemonsets", "/api/v1/pods/p/frob", "/api/v1/namespaces/a/nodes",
    "/apis/example.com/v2/things", "/api/v1/namespaces/a/pods/p/log/more",
])
def test_paths_that_lead_nowhere(caller: Caller, path: str) -> None:
    with pytest.raises(errors.NotFound, match="could not find the requested resource"):
        caller.api.catalog.target(path)


@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/api/v1/nodes/n"), ("PUT", "/api/v1/nodes"), ("PATCH", "/api/v1/nodes"), ("DELETE", "/api/v1/nodes/n/status"),
    ("GET", "/api/v1/namespaces/default/pods/p/eviction"), ("POST", "/api/v1/namespaces/default/pods/p/log"),
])
def test_methods_that_a_path_does_not_have(caller: Caller, method: str, path: str) -> None:
    assert caller.refused(method, path, {})[:2] == (405, "MethodNotAllowed")
