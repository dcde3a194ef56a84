from __future__ import annotations

from typing import Any

import pytest

from kubesandbox import errors
from sandbox_helpers.calls import Caller

Object = dict[str, Any]


@pytest.fixture
def caller() -> Caller:
    """Serve nodes, and refuse those labelled locked: new ones, and changes of what was locked before."""
    found = Caller()
    found.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})

    def locked(key: str, old: Object | None, new: Object) -> None:
        if key == "nodes" and ((old or new)["metadata"].get("labels") or {}).get("locked"):
            raise errors.Forbidden('admission webhook "locks" denied the request')
    found.api.webhooks.append(locked)
    return found


def test_a_webhook_sees_what_is_new_and_what_is_changed_and_by_whatever_patch(caller: Caller) -> None:
    assert caller.refused("POST", "/api/v1/nodes", {"metadata": {"name": "m", "labels": {"locked": "yes"}}}) == (
        403, "Forbidden", 'admission webhook "locks" denied the request')
    caller.patch("merge", "/api/v1/nodes/n", {"metadata": {"labels": {"locked": "yes"}}})
    change = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"x": "y"}}}
    assert caller.refused("PUT", "/api/v1/nodes/n", change)[0] == 403
    for kind in ("merge", "strategic"):
        assert caller.refused("PATCH", "/api/v1/nodes/n", change, content_type=f"application/{kind}-"
                              f"{'merge-' if kind == 'strategic' else ''}patch+json")[0] == 403
    assert caller.refused("PATCH", "/api/v1/nodes/n", change, content_type="application/apply-patch+yaml",
                          fieldManager="me", force="true")[0] == 403
    assert caller.store.get("nodes", None, "n")["metadata"]["labels"] == {"locked": "yes"}


def test_status_and_other_kinds_are_none_of_its_business(caller: Caller) -> None:
    caller.patch("merge", "/api/v1/nodes/n", {"metadata": {"labels": {"locked": "yes"}}})
    caller.patch("merge", "/api/v1/nodes/n/status", {"status": {"phase": "Running"}})
    caller.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "a", "labels": {"locked": "yes"}}})
