"""The API server in process, for gpuward's own client: the same requests and answers, without sockets.

Tests make it misbehave: `interfere` stands between the client and the server and may refuse, replace or lose what passes;
`break_streams` cuts every open watch.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gpuward import errors
from gpuward.kube.http.refusals import refusal
from gpuward.kube.http.transport import Response
from kubesandbox.messages import JSON, Answer, Request, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kubesandbox.api import ApiServer

    Proceed = Callable[[], Answer | Stream]
    Interference = Callable[[Request, Proceed], Answer | Stream]


def _pass(request: Request, proceed: Proceed) -> Answer | Stream:
    del request
    return proceed()


class InProcessTransport:
    """Carry a client's requests to an API server in the same event loop.

    `latency` is the seconds that a request takes, half of them before the server acts. `interfere` gets each request and the
    function that lets the server answer it; what it raises before calling that never reached the server, what it raises after
    is an answer lost.
    """

    def __init__(self, api: ApiServer, *, latency: float = 0.0, interfere: Interference = _pass) -> None:
        self._api = api
        self.latency = latency
        self.interfere = interfere
        self.delay: Callable[[Request], float] = lambda request: 0.0
        """Return how many seconds more a request takes before the server acts, as where a webhook does not answer."""
        self._broken: set[Stream] = set()
        self._open: dict[Stream, None] = {}
        """In the order in which they were opened, so that they are cut in the same order in every run."""
        self._closed = False

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None,
                      body: bytes | None = None, content_type: str = JSON, timeout: float | None = None) -> Response:
        """Send one request and return its answer.

        Raises `errors.Unreachable` after `close`, by interference, or when the latency is longer than `timeout`.
        """
        self._check_open()
        request = Request(method, unquote(path), dict(query or {}), body or b"", content_type)
        try:
            slow = self.delay(request)
            async with asyncio.timeout(timeout if self.latency or slow else None):
                await asyncio.sleep(self.latency / 2 + slow)
                answer, at = self._handle(request), asyncio.get_running_loop().time()
                if self.latency:
                    await asyncio.sleep(self.latency / 2)
        except TimeoutError:
            raise errors.Unanswered(f"{method} {path}: no answer within {timeout:g} s") from None
        if isinstance(answer, Stream):
            answer.close()
            raise errors.BadRequest("a watch was asked for where one answer is expected")
        return Response(answer.status, {**answer.headers, "Date": formatdate(at, usegmt=True)}, answer.body)

    async def stream(self, path: str, *, query: Mapping[str, str], idle_timeout: float) -> AsyncIterator[bytes]:
        """Yield a watch's lines; raise `errors.ApiError` when refused, `errors.Unreachable` when broken or silent too long."""
        self._check_open()
        await asyncio.sleep(self.latency)
        answer = self._handle(Request("GET", unquote(path), {**query, "watch": query.get("watch", "true")}))
        if isinstance(answer, Answer):
            raise refusal(Response(answer.status, answer.headers, answer.body))
        self._open[answer] = None
        try:
            chunks = aiter(answer.chunks())
            while True:
                try:
                    async with asyncio.timeout(idle_timeout):
                        line = await anext(chunks)
                except StopAsyncIteration:
                    self._check_unbroken(answer)
                    return
                except TimeoutError:
                    raise errors.Unreachable(f"the watch of {path} was silent for {idle_timeout:g} s") from None
                self._check_unbroken(answer)
                yield line
        finally:
            answer.close()
            self._open.pop(answer, None)
            self._broken.discard(answer)

    async def close(self) -> None:
        """Refuse later requests and end the open watches."""
        self._closed = True
        self.break_streams()

    def break_streams(self) -> None:
        """Cut every open watch, as a network or a restarting API server does."""
        for stream in list(self._open):
            self._broken.add(stream)
            stream.close()

    def _handle(self, request: Request) -> Answer | Stream:
        return self.interfere(request, lambda: self._api.handle(request))

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Unreachable("the transport is closed")

    def _check_unbroken(self, stream: Stream) -> None:
        if stream in self._broken:
            raise errors.Unreachable("the watch was cut")
