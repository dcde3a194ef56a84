from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gpuward import errors
from gpuward.sandbox.transport import InProcessTransport
from kubesandbox.messages import Answer, Request, Stream
from kubesandbox.timeloop import VirtualLoop
from sandbox_helpers.calls import Caller

NODES = "/api/v1/nodes"
Story = Callable[[Caller, InProcessTransport], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def begin() -> None:
            caller = Caller()
            await story(caller, InProcessTransport(caller.api))

        loop = VirtualLoop()
        try:
            loop.run_until_complete(begin())
        finally:
            loop.close()
    return run


def test_requests_and_refusals(play: Callable[[Story], None]) -> None:
    async def story(caller: Caller, transport: InProcessTransport) -> None:
        made = await transport.request("POST", NODES, body=b'{"metadata":{"name":"n"}}', query={"fieldValidation": "Strict"})
        assert (made.status, json.loads(made.body)["metadata"]["name"]) == (201, "n")
        assert (await transport.request("GET", NODES + "/missing%2Dnode")).status == 404
        transport.latency = 2.0
        begun = asyncio.get_running_loop().time()
        await transport.request("GET", NODES)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(2.0)
        with pytest.raises(errors.Unreachable, match=r"no answer within 1\.5 s"):
            await transport.request("POST", NODES, body=b'{"metadata":{"name":"late"}}', timeout=1.5)
        assert caller.store.find("nodes", None, "late")

    play(story)


def test_a_watch_yields_lines_until_the_server_ends_it(play: Callable[[Story], None]) -> None:
    async def story(caller: Caller, transport: InProcessTransport) -> None:
        caller.node("n")
        lines = [json.loads(line) async for line in transport.stream(NODES, query={"timeoutSeconds": "5"}, idle_timeout=60)]
        assert [(line["type"], line["object"]["metadata"]["name"]) for line in lines] == [("ADDED", "n")]
        with pytest.raises(errors.NotFound):
            _ = [line async for line in transport.stream("/api/v1/frobs", query={}, idle_timeout=60)]

    play(story)


def test_a_silent_watch_and_a_cut_one_are_unreachable(play: Callable[[Story], None]) -> None:
    async def story(caller: Caller, transport: InProcessTransport) -> None:
        with pytest.raises(errors.Unreachable, match="silent for 9 s"):
            _ = [line async for line in transport.stream(NODES, query={}, idle_timeout=9)]
        asyncio.get_running_loop().call_later(3, transport.break_streams)
        with pytest.raises(errors.Unreachable, match="cut"):
            _ = [line async for line in transport.stream(NODES, query={}, idle_timeout=60)]

    play(story)


def test_interference_can_lose_an_answer(play: Callable[[Story], None]) -> None:
    def lose(request: Request, proceed: Callable[[], Answer | Stream]) -> Answer | Stream:
        proceed()
        raise errors.Unreachable("lost")

    async def story(caller: Caller, transport: InProcessTransport) -> None:
        transport.interfere = lose
        with pytest.raises(errors.Unreachable, match="lost"):
            await transport.request("POST", NODES, body=b'{"metadata":{"name":"n"}}')
        assert caller.store.find("nodes", None, "n")

    play(story)


def test_a_closed_transport_refuses(play: Callable[[Story], None]) -> None:
    async def story(caller: Caller, transport: InProcessTransport) -> None:
        await transport.close()
        with pytest.raises(errors.Unreachable):
            await transport.request("GET", NODES)

    play(story)
