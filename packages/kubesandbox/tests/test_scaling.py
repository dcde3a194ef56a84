from __future__ import annotations

from typing import Any

import pytest

from sandbox_helpers.calls import PATCHES, Caller

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    found.ok("POST", "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    return found


def test_reading_and_changing_the_scale(caller: Caller) -> None:
    scale: Any = caller.ok("GET", SCALE)
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 2}, "a=b")
    scale["spec"]["replicas"] = 5
    assert caller.ok("PUT", SCALE, scale)["spec"] == {"replicas": 5}
    assert caller.patch("merge", SCALE, {"spec": {"replicas": 1}})["spec"] == {"replicas": 1}
    assert caller.store.get("deployments.apps", "default", "web")["metadata"]["generation"] == 3
    assert caller.refused("PUT", SCALE, scale)[0] == 409
    assert caller.refused("PATCH", SCALE, {"spec": {"replicas": -1}}, content_type=PATCHES["merge"])[0] == 422
