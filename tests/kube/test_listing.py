"""The transport of commands that only look: nothing but GET leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gpuward.errors import MethodNotAllowed
from gpuward.kube import resources
from gpuward.kube.http.client import Client, Selection
from gpuward.kube.http.listing import ListingTransport
from gpuward.sandbox.cluster import Sandbox
from gpuward.sandbox.fleet import cpu_node
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.timeloop import run_virtual


def test_it_reads_and_refuses_to_write_and_its_watches_say_nothing() -> None:
    async def main() -> None:
        sandbox = Sandbox()
        sandbox.add_node(cpu_node("a"))
        asked: list[str] = []
        inner = sandbox.transport()

        def note(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
            asked.append(request.method)
            return proceed()

        inner.interfere = note
        client = Client(ListingTransport(inner))
        assert (await client.get(resources.NODES, "a")).object()["metadata"]["name"] == "a"
        assert [item async for item in client.list(Selection(resources.NODES))]
        with pytest.raises(MethodNotAllowed, match="this command changes nothing"):
            await client.patch_merge(resources.NODES, "a", {"metadata": {"labels": {"x": "y"}}})
        lines = aiter(ListingTransport(inner).stream("/api/v1/nodes", query={}, idle_timeout=1.0))
        said = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(100)
        assert not said.done()
        said.cancel()
        assert asked == ["GET", "GET"]

    run_virtual(main)
