"""Look at an API server once: only what gets and lists is sent, so that the rights to get and to list are enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpuward import errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from gpuward.kube.http.transport import Response, Transport


class ListingTransport:
    """Carry GET requests, and refuse all others before they are sent. A watch is never opened: it never says anything."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None,
                      content_type: str = "application/json", timeout: float | None = None) -> Response:
        """Send a GET and return its answer; raises errors.MethodNotAllowed for anything else."""
        if method != "GET":
            raise errors.MethodNotAllowed(f"{method} {path} was not sent: this command changes nothing")
        return await self._transport.request(method, path, query=query, body=body, content_type=content_type, timeout=timeout)

    async def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        """Yield nothing, for ever."""
        await asyncio.Event().wait()
        yield b""

    async def close(self) -> None:
        """Release the connections."""
        await self._transport.close()
