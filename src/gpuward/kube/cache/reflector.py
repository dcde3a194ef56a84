"""Keep a sink in step with a resource: list it, watch it, and never fall silent.

One reflector follows one selection. It lists in pages, then watches from the list's version; after a break it goes on
from the last version seen, and lists again only when the server no longer keeps that version (410). A watch is ended
by the server after some minutes, so that a load balancer or a forgotten connection cannot hold it, and so that a right
which was taken away is noticed: kube-apiserver looks at rights only when a watch begins. Bookmarks come at
least every minute or so, so that silence for longer means that the connection is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from gpuward import errors
from gpuward.kube.cache.projection import read_head
from gpuward.kube.http.backoff import Backoff, asked_wait
from gpuward.kube.http.client import PAGE_SIZE
from gpuward.model.backoff import backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from gpuward.kube.http.client import Client, Selection

DENIED: Final = (errors.Forbidden, errors.NotFound, errors.MethodNotAllowed)
"""Refusals that only a person can end: no permission, or no such resource (its CRD is not installed)."""


class ListSink(Protocol):
    """Take the objects of one list."""

    def add(self, raw: bytes) -> None:
        """Take one object's JSON."""
        ...

    def commit(self, version: str) -> None:
        """Take the list as complete."""
        ...


class Sink(Protocol):
    """Take what a reflector sees; `gpuward.kube.cache.cache.Cache` is one."""

    def listing(self) -> ListSink:
        """Begin a list."""
        ...

    def event(self, kind: str, raw: bytes) -> str:
        """Take a watch event, ADDED, MODIFIED or DELETED, and the object's JSON; return its resource version."""
        ...

    def bookmark(self, version: str) -> None:
        """Take a bookmark."""
        ...


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Hold a reflector's times, all in seconds."""

    watch: float = 300.0
    """How long the server is asked to keep a watch, give or take a fifth."""
    silence: float = 150.0
    """How long a watch may say nothing. kube-apiserver sends a bookmark about every 60 s, and leaves one out when it is busy.
    Where requests find sooner that connections are dead, the transport ends their watches sooner."""
    first_denied: float = 0.5
    """How long to wait after a refusal for lack of a right or of the resource: an API server that has just been started refuses
    so until it has read its roles and CRDs."""
    denied: float = 30.0
    """How long to wait at most while such refusals go on: then they will not pass by themselves."""
    first_delay: float = 0.1
    longest_delay: float = 10.0
    busy: float = 10.0
    """How long an API server may say that it is too busy before that is reported: for a CRD that has just been made it says so
    at first, until it has prepared to store its objects."""
    short_watch: float = 1.0
    """A watch that ends sooner, with nothing said, counts as a failure: it must not be repeated without a pause."""


class Reflector:
    """Follow one selection into one sink, until cancelled.

    `report` is called with the error when following begins to fail or fails in another way, and with None when it
    works again; repeats are not reported.
    """

    def __init__(
        self,
        client: Client,
        selection: Selection,
        sink: Sink,
        *,
        random: Random,
        report: Callable[[errors.GpuwardError | None], None] | None = None,
        timing: WatchTiming | None = None,
    ) -> None:
        self.selection = selection
        self.failure: errors.GpuwardError | None = None
        """Why following does not work now, or None."""
        self._client = client
        self._sink = sink
        self._random = random
        self.absent: Callable[[], Awaitable[None]] | None = None
        """What waits, while the server does not have the resource, until it may have it."""
        self._report = report
        self._timing = timing or WatchTiming()
        self._backoff = Backoff(random, self._timing.first_delay, self._timing.longest_delay)
        self._denials = 0
        self._reported: type[errors.GpuwardError] | None = None
        self._failing_since = 0.0
        self._version = ""

    async def run(self) -> NoReturn:
        """List and watch, again and again. Ends only by cancellation."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except errors.Gone:
                self._version = ""
                await asyncio.sleep(self._backoff.next())
            except DENIED as error:
                self._fails(error)
                await asyncio.sleep(self._after_denial(error))
                if self.absent is not None and isinstance(error, errors.NotFound):
                    await self.absent()
            except (errors.ApiError, errors.Unreachable) as error:
                self._fails(error)
                await asyncio.sleep(self._backoff.next(error))

    async def _list(self) -> None:
        try:
            await self._list_pages(PAGE_SIZE)
        except errors.Gone:  # paging took longer than the server keeps a version: only one whole answer can succeed
            await self._list_pages(0)
        self._works()

    async def _list_pages(self, limit: int) -> None:
        listing = self._sink.listing()
        version = ""
        async with contextlib.aclosing(self._client.pages(self.selection, limit=limit)) as pages:
            async for page in pages:
                version = page.version
                for item in page.items or ():
                    listing.add(bytes(item))
        if not version:
            raise errors.ServerError(f"the list of {self.selection.resource} has no resourceVersion")
        listing.commit(version)
        self._version = version

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        begun, spoke = loop.time(), False
        seconds = round(self._timing.watch * self._random.uniform(0.8, 1.2))
        events = self._client.watch(
            self.selection, self._version, server_seconds=seconds, idle_seconds=self._timing.silence
        )
        async with contextlib.aclosing(events):
            async for event in events:
                self._take(event.type, bytes(event.object))
                if not spoke:
                    spoke = True
                    self._works()
                    self._backoff.reset()
        if not spoke and loop.time() - begun < self._timing.short_watch:
            await asyncio.sleep(self._backoff.next())
        else:
            self._works()
            self._backoff.reset()

    def _take(self, kind: str, raw: bytes) -> None:
        if kind == "BOOKMARK":
            self._version = read_head(raw).metadata.resource_version
            self._sink.bookmark(self._version)
        elif kind in ("ADDED", "MODIFIED", "DELETED"):
            self._version = self._sink.event(kind, raw)
        else:
            raise errors.ServerError(f"the watch of {self.selection.resource} sent an event of type {kind!r}")

    def _fails(self, error: errors.GpuwardError) -> None:
        now = asyncio.get_running_loop().time()
        if self.failure is None:
            self._failing_since = now
        self.failure = error
        passing = isinstance(error, errors.TooManyRequests) and now < self._failing_since + self._timing.busy
        if type(error) is self._reported or passing:
            return
        self._reported = type(error)
        if self._report is not None:
            self._report(error)

    def _after_denial(self, error: errors.GpuwardError) -> float:
        self._denials += 1
        delay = backoff(self._denials, self._timing.first_denied, self._timing.denied)
        return max(delay * self._random.uniform(0.9, 1.1), asked_wait(error))

    def _works(self) -> None:
        self._denials = 0
        self.failure = None
        if self._reported is not None:
            self._reported = None
            if self._report is not None:
                self._report(None)
