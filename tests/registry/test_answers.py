"""What is made of the answers that registries of different makers give for an image that is not there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from gpuward.ports import ImageFound
from gpuward.registry.client import RegistryClient

TAG = "595.91.80-ubuntu22.04"


def answered(status: int, **error: Any) -> tuple[ImageFound, str]:
    """Return what is found at a registry that gives an answer with one error, and its address."""
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"errors": [error]}, status=status)

    async def story() -> tuple[ImageFound, str]:
        app = web.Application()
        app.add_routes([web.get("/v2/gpu/driver/manifests/{tag}", answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"127.0.0.1:{runner.addresses[0][1]}"
        try:
            return await RegistryClient().find(f"{address}/gpu/driver:{TAG}", {}), address
        finally:
            await runner.cleanup()

    return asyncio.run(story())


@pytest.mark.parametrize("error", [
    {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown", "detail": {"Tag": TAG}},
    {"code": "NOT_FOUND", "message": f"artifact gpu/driver:{TAG} not found"},
], ids=["distribution", "Harbor"])
def test_a_tag_that_a_repository_has_not_is_missing(error: dict[str, Any]) -> None:
    found, address = answered(404, **error)
    assert found == ImageFound(False, f"{address} has no manifest {TAG} of gpu/driver")


@pytest.mark.parametrize(("status", "error"), [
    (404, {"code": "NAME_UNKNOWN", "message": "repository name not known to registry"}),
    (404, {"code": "NOT_FOUND", "message": "repository gpu/driver not found"}),
    (404, {"code": "NOT_FOUND", "message": None}),
    (403, {"code": "DENIED", "message": "requested access to the resource is denied"}),
    (502, {"code": "UNKNOWN", "message": "artifact gpu/driver could not be fetched"}),
])
def test_of_anything_else_nothing_is_known(status: int, error: dict[str, Any]) -> None:
    found, address = answered(status, **error)
    assert found == ImageFound(None, f"{address} answered {status} {error['code']}")
