"""The port between the client and whatever answers it: a real API server over HTTP, or the sandbox in process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


class Response(NamedTuple):
    """Hold one answer of an API server, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Look headers up case-insensitively with `header`: a transport may deliver them as the server spelt them."""
    body: bytes

    def header(self, name: str) -> str | None:
        """Return a header's value by its name in any case, or None."""
        wanted = name.lower()
        return next((value for key, value in self.headers.items() if key.lower() == wanted), None)


class Transport(Protocol):
    """Carry requests to one API server.

    Paths are absolute and already percent-encoded ("/api/v1/nodes/gpu-1"); query values are not encoded yet.
    """

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """Send one request and return its answer; a refusal is an answer too.

        `timeout` is in seconds for the whole exchange; None means the transport's own default.
        Raises errors.Unreachable when no complete answer came: a write may or may not have happened.
        """
        ...

    def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        """Yield the complete lines of a watch until the server ends it.

        Where the iterator is an async generator, its `aclose()` ends the watch early.
        Raises errors.ApiError when the server refuses the watch, errors.Unreachable when the connection breaks or
        nothing at all arrives for `idle_timeout` seconds.
        """
        ...

    async def close(self) -> None:
        """Release the connections. Later requests raise errors.Unreachable."""
        ...
