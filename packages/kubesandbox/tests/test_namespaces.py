from __future__ import annotations

from sandbox_helpers.calls import Caller


def test_a_deleted_namespace_goes_when_its_last_object_has_gone() -> None:
    caller = Caller()
    caller.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    caller.ok("POST", "/api/v1/namespaces/team/configmaps", {"metadata": {"name": "c"}})
    caller.ok("POST", "/api/v1/namespaces/team/pods", {
        "metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
    caller.ok("DELETE", "/api/v1/namespaces/team")
    assert caller.ok("GET", "/api/v1/namespaces/team")["status"]["phase"] == "Terminating"
    assert caller.store.list("configmaps", "team") == []
    found = caller.refused("POST", "/api/v1/namespaces/team/configmaps", {"metadata": {"name": "d"}})
    assert found[:2] == (403, "Forbidden")
    assert "because it is being terminated" in found[2]
    caller.store.remove("pods", "team", "p")
    assert caller.refused("GET", "/api/v1/namespaces/team")[0] == 404


def test_an_empty_namespace_goes_at_once() -> None:
    caller = Caller()
    caller.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert caller.store.get("namespaces", None, "team")["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    caller.ok("DELETE", "/api/v1/namespaces/team")
    assert caller.store.find("namespaces", None, "team") is None
