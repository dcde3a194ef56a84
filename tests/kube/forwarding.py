"""A real forward proxy on loopback: it tunnels what asks for CONNECT, and fetches what is asked for by a whole URL."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class ForwardProxy:
    """Hold where a proxy is, and what it was asked for."""

    url: str = ""
    refusal: str = ""
    """The status line with which it refuses everything, if it does."""
    requests: list[str] = field(default_factory=list)
    """Method and target of each request."""
    headers: list[dict[str, str]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            method, target, _ = first.split(" ")
            self.requests.append(f"{method} {target}")
            self.headers.append({key.lower(): value for key, _, value in (line.partition(": ") for line in lines)})
            if self.refusal:
                writer.write(f"HTTP/1.1 {self.refusal}\r\nContent-Length: 0\r\n\r\n".encode())
                return
            split = urlsplit(target if method != "CONNECT" else f"//{target}")
            far_reader, far_writer = await asyncio.open_connection(split.hostname, split.port)
            with contextlib.closing(far_writer):
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    far_writer.write(head.replace(target.encode(), (split.path or "/").encode(), 1))
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def forwarding(*, tls: ssl.SSLContext | None = None, refusal: str = "") -> AsyncIterator[ForwardProxy]:
    """Serve a proxy, over TLS if told to."""
    proxy = ForwardProxy(refusal=refusal)
    open_now: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(asyncio.ensure_future(proxy.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    proxy.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    try:
        yield proxy
    finally:
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
