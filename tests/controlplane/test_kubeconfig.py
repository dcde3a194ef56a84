"""What a kubeconfig asks for, as a real API server sees it: who acts, through which proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml

from gpuward.kube.config.loading import find_access
from gpuward.kube.http.aiohttp_transport import AiohttpTransport
from gpuward.kube.http.client import Client
from gpuward.kube.resources import GVR
from tests.controlplane.plane import Plane
from tests.kube.forwarding import forwarding

pytestmark = pytest.mark.controlplane

REVIEWS = GVR("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def test_impersonation_through_a_proxy(plane: Plane) -> None:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] |= {"as": "jane", "as-uid": "42", "as-groups": ["devs", "ops"],
                                   "as-user-extra": {"example.com/Scope": ["view", "list"]}}
    file = plane.state / "impersonating"

    async def run() -> tuple[dict[str, Any], list[str]]:
        async with forwarding() as proxy:
            config["clusters"][0]["cluster"]["proxy-url"] = proxy.url
            file.write_text(yaml.safe_dump(config))
            client = Client(AiohttpTransport(find_access(str(file), environ={})))
            try:
                return (await client.create(REVIEWS, REVIEW)).object(), proxy.requests
            finally:
                await client.close()

    review, asked = asyncio.run(run())
    assert review["status"]["userInfo"] == {
        "username": "jane", "uid": "42", "groups": ["devs", "ops", "system:authenticated"],
        "extra": {"example.com/scope": ["view", "list"]},
    }
    assert [request.split()[0] for request in asked] == ["CONNECT"]
