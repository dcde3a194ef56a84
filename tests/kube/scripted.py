"""A transport that a test scripts, for virtual time: the port is replaced, never the code behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpuward import errors
from gpuward.kube.http.transport import Response


@dataclass
class Asked:
    """Hold one request as the transport got it, and when (loop time)."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    content_type: str
    at: float


@dataclass
class Watch:
    """Let a test speak on a watch, break it or end it."""

    query: dict[str, str]
    at: float
    lines: asyncio.Queue[bytes | errors.GpuwardError | None] = field(default_factory=asyncio.Queue)
    closed: bool = False

    def send(self, kind: str, obj: Any) -> None:
        """Send an event."""
        self.lines.put_nowait(msgspec.json.encode({"type": kind, "object": obj}))

    def bookmark(self, version: int) -> None:
        """Send a bookmark."""
        self.send("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def end(self, error: errors.GpuwardError | None = None) -> None:
        """End the watch as the server does, or break it."""
        self.lines.put_nowait(error)


Answerer = Callable[[Asked], Awaitable[Response] | Response]


class ScriptedTransport:
    """Answer requests with a function and leave watches to the test; time is the event loop's."""

    def __init__(self, answer: Answerer) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.watches: list[Watch] = []
        self.refuse_watch: errors.GpuwardError | None = None
        self.closed = False

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
        """Record the request and give it to the function."""
        data = msgspec.json.decode(body) if body else None
        asked = Asked(method, path, dict(query or {}), data, content_type, asyncio.get_running_loop().time())
        self.asked.append(asked)
        answer = self.answer(asked)
        try:
            async with asyncio.timeout(timeout):
                return answer if isinstance(answer, Response) else await answer
        except TimeoutError:
            raise errors.Unreachable("no answer in time") from None

    async def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        """Give what the test sends; raise when it sends nothing for too long."""
        watch = Watch(dict(query), asyncio.get_running_loop().time())
        self.watches.append(watch)
        if self.refuse_watch is not None:
            raise self.refuse_watch
        try:
            while True:
                async with asyncio.timeout(idle_timeout):
                    line = await watch.lines.get()
                if line is None:
                    return
                if isinstance(line, errors.GpuwardError):
                    raise line
                yield line
        except TimeoutError:
            raise errors.Unreachable("silence") from None
        finally:
            watch.closed = True

    async def close(self) -> None:
        """Remember that it was called."""
        self.closed = True


def ok(body: Any, status: int = 200) -> Response:
    """Return an answer."""
    return Response(status, {}, msgspec.json.encode(body))


def refused(status: int, reason: str = "", message: str = "no", **details: Any) -> Response:
    """Return a refusal."""
    return ok({"kind": "Status", "code": status, "reason": reason, "message": message, "details": details}, status)


def listed(version: int, *items: Any, more: str = "") -> Response:
    """Return a list, or a page of one."""
    return ok({"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)})


def thing(name: str, version: int | str, *, uid: str = "", namespace: str = "", **spec: Any) -> dict[str, Any]:
    """Return an object whose spec says what the test wants."""
    meta = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    if namespace:
        meta["namespace"] = namespace
    return {"metadata": meta, "spec": spec}
