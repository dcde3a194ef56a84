from __future__ import annotations

import asyncio
import json

import aiohttp
import yaml

from kubesandbox.server import HttpServer
from sandbox_helpers.calls import Caller


def test_http_carries_requests_and_streams() -> None:
    async def story() -> None:
        caller = Caller()
        server = HttpServer(caller.api)
        url = await server.start()
        assert yaml.safe_load(server.kubeconfig("agents"))["clusters"][0]["cluster"]["server"] == url
        async with aiohttp.ClientSession(url) as http:
            made = await http.post("/api/v1/nodes", json={"metadata": {"name": "n"}, "spec": {"foo": 1}})
            assert made.status == 201
            assert "unknown field" in made.headers["Warning"]
            assert (await http.get("/api/v1/nodes/m")).status == 404
            async with http.get("/api/v1/nodes", params={"watch": "1"}) as watch:
                first = json.loads(await watch.content.readline())
                caller.node("m")
                second = json.loads(await watch.content.readline())
            assert (first["object"]["metadata"]["name"], second["object"]["metadata"]["name"]) == ("n", "m")
            async with http.get("/api/v1/nodes", params={"watch": "1", "timeoutSeconds": "1"}) as watch:
                assert len((await watch.text()).splitlines()) == 2
        await server.stop()

    asyncio.run(story())
