"""A TCP proxy before the API server whose network can be cut in the ways that networks are."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

CHUNK = 65536
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with which a socket that is closed sends a reset."""


class Network(Enum):
    """Name what becomes of connections."""

    FINE = "fine"
    RESETS = "resets"
    """Each is reset, those that are open and those that are tried."""
    SILENT = "silent"
    """They stay open, new ones are accepted, and nothing arrives."""
    HALF_OPEN = "half-open"
    """Those that are open stay silent for ever, new ones are fine: as after a firewall has lost its memory."""


class Proxy:
    """Pass connections on to a port of this machine, from another port."""

    def __init__(self, to: int) -> None:
        self.port = 0
        self.network = Network.FINE
        self._to = to
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()

    def turn(self, network: Network) -> None:
        """Change the network for every connection."""
        self._call(self._turn(network))

    def run(self) -> None:
        """Serve on the present thread until stopped."""
        self._loop.run_forever()
        self._loop.close()

    def start(self) -> None:
        """Listen on a port of the loopback interface."""
        self._call(self._listen())

    def stop(self) -> None:
        """End every connection and the loop."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._flows.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _turn(self, network: Network) -> None:
        self.network = network
        if network in (Network.SILENT, Network.HALF_OPEN):
            self._flows.clear()
        else:
            # What was silent is lost: its connections would not come back on a real network either.
            self._reset_all()
        if network is not Network.SILENT:
            self._flows = asyncio.Event()
            self._flows.set()

    async def _end(self) -> None:
        self._server.close()
        self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _reset_all(self) -> None:
        for writer in tuple(self._writers):
            _reset(writer)
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.network is Network.RESETS:
            _reset(writer)
            return
        self._writers.add(writer)
        flows = self._flows
        await flows.wait()
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            self._writers.add(back)
            await asyncio.gather(_pass_on(reader, back, flows), _pass_on(there, writer, flows))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await flows.wait()
            writer.write(data)
            await writer.drain()
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    writer.transport.abort()


@contextmanager
def proxied(to: int) -> Iterator[Proxy]:
    """Keep a proxy running."""
    proxy = Proxy(to)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join(30)
