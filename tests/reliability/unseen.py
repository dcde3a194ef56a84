"""Watch events that never arrive: the operator sees the next event of the same object, or a new list when there is none soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from gpuward import errors
from kubesandbox import messages
from kubesandbox.messages import Answer, Request, Stream
from tests.journeys.stage import Proceed

PATIENCE_SECONDS = 20.0
"""How long the object's next event is waited for, until the watch expires and everything is listed anew."""

GONE = messages.encode({"type": "ERROR", "object": messages.status_object(errors.Gone("too old resource version"))}) + b"\n"

Line = dict[str, Any]
Withhold = Callable[[Line, "Watched"], bool]
"""Told of each event of a watch: whether it is never to be delivered."""


class Watched:
    """Pass a watch's lines on, but for those that are withheld."""

    def __init__(self, stream: Stream, withhold: Withhold) -> None:
        self._stream = stream
        self._withhold = withhold
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._hidden = ""
        """The object whose event was withheld, until its next one comes."""
        self.expired = self.followed = False

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines."""
        feeding = asyncio.ensure_future(self._feed())
        try:
            while (line := await self._lines.get()) is not None:
                yield line
        finally:
            feeding.cancel()

    async def _feed(self) -> None:
        async for line in self._stream.chunks():
            event = msgspec.json.decode(line)
            uid = event["object"].get("metadata", {}).get("uid", "")
            if uid and self._withhold(event, self):
                self._hidden = uid
                asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._expire)
                continue
            if uid and self._hidden == uid:
                self._hidden, self.followed = "", True
            if uid or not self._hidden:  # a bookmark would say that nothing is missing
                self._lines.put_nowait(line)
        self._lines.put_nowait(None)

    def _expire(self) -> None:
        if self.expire():
            self._lines.put_nowait(GONE)
            self._lines.put_nowait(None)

    def expire(self) -> bool:
        """Take it that everything is listed anew if something is still hidden; tell whether it was."""
        self.expired = self.expired or bool(self._hidden)
        was_hidden, self._hidden = bool(self._hidden), ""
        return was_hidden

    def close(self) -> None:
        """End the watch."""
        self._lines.put_nowait(None)
        self._stream.close()


class Watching:
    """Wrap every watch of the operator."""

    def __init__(self, withhold: Withhold) -> None:
        self._withhold = withhold
        self._last: dict[str, Watched] = {}

    def __call__(self, request: Request, proceed: Proceed) -> Answer | Stream:
        """Answer a read as usual; a stream comes through a `Watched`. One that goes on after something hidden is too old."""
        answer = proceed()
        if isinstance(answer, Answer):
            return answer
        if request.path in self._last and self._last[request.path].expire():
            answer.close()
            return Stream(_expired, answer.close)
        watched = self._last[request.path] = Watched(answer, self._withhold)
        return Stream(watched.lines, watched.close)


async def _expired() -> AsyncIterator[bytes]:
    yield GONE
