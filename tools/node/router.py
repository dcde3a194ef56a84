"""The router of the nodes' network, a process in a network namespace of its own.

It takes pods and nodes to the API server, and the API server to nodes and pods; nothing else crosses.
Usage: python -m tools.node.router EGRESS_SOCKET API_PORT GROUP
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tools.node import cgroups, linux, network

_CHUNK = 65536
_OK = b"HTTP/1.1 200 OK\r\n\r\n"
_FAILED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Namespaces:
    """Make sockets in either network: one belongs for ever to the network in which it was made."""

    def __init__(self) -> None:
        self._machine = os.open("/proc/self/ns/net", os.O_RDONLY)
        linux.unshare(linux.NEWNET)
        self._own = os.open("/proc/self/ns/net", os.O_RDONLY)

    async def to_machine(self, port: int) -> Stream:
        """Connect to a port of this machine's loopback interface."""
        linux.enter(self._machine)
        try:
            one = socket.socket()
        finally:
            linux.enter(self._own)
        return await _connect(one, "127.0.0.1", port)

    async def to_nodes(self, host: str, port: int) -> Stream:
        """Connect to a node or a pod."""
        return await _connect(socket.socket(), host, port)


async def _connect(one: socket.socket, host: str, port: int) -> Stream:
    one.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(one, (host, port))
        return await asyncio.open_connection(sock=one)
    except BaseException:
        one.close()
        raise


async def splice(near: Stream, far: Stream) -> None:
    """Pass on what comes from either side until both have ended."""
    try:
        await asyncio.gather(_pump(near[0], far[1]), _pump(far[0], near[1]))
    except OSError:
        pass  # One side is gone; the other one learns it now.
    finally:
        for _, writer in (near, far):
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    # A client that has said all may still wait for the answer.
    writer.write_eof()


async def to_api(connect: Callable[[], Awaitable[Stream]], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a pod or a node that wants the API server."""
    try:
        far = await connect()
    except OSError:
        writer.close()
        return
    await splice((reader, writer), far)


async def to_node(namespaces: Namespaces, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve the API server, which asks for a node or pod with HTTP's CONNECT."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        host, _, port = head.split()[1].decode().rpartition(":")
        far = await namespaces.to_nodes(host.strip("[]"), int(port))
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        sys.stderr.write(f"not connected: {error}\n")
        sys.stderr.flush()
        writer.write(_FAILED)
        writer.close()
        return
    writer.write(_OK)
    await splice((reader, writer), far)


async def serve(namespaces: Namespaces, egress: Path, port: int) -> None:
    """Serve both directions for ever."""
    with suppress(FileNotFoundError):
        egress.unlink()
    await asyncio.start_server(partial(to_api, lambda: namespaces.to_machine(port)), network.SERVICE, 443)
    # This one comes last: it tells those who wait that all is there.
    server = await asyncio.start_unix_server(partial(to_node, namespaces), egress)
    await server.serve_forever()


def main() -> None:
    """Run the router until it is killed."""
    egress, port, group = sys.argv[1:]
    linux.make_private()
    cgroups.mount()
    cgroups.join(f"{group}/router")
    namespaces = Namespaces()
    network.make_router()
    asyncio.run(serve(namespaces, Path(egress), int(port)))


if __name__ == "__main__":
    main()
