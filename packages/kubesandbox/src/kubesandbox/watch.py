"""Watches: the changes of one resource as a stream of lines, from a version on, with bookmarks and the server's time-out.

Each line is delivered after the resource's watch delay and never before an earlier one, so watches of different resources lag
independently of each other, as they do in a real cluster.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kubesandbox import errors, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kubesandbox.store import Event, Store

Object = dict[str, Any]

BOOKMARK_SECONDS: Final = 60.0
DEFAULT_SECONDS: Final = 1800
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Wish:
    """Say what a watch wants to see; `since` None means: first the objects that there are."""

    resource_key: str
    since: int | None
    matches: Callable[[Object], bool]
    encode: Callable[[str, Object], bytes]
    """Makes the line of a change from its type and object."""
    bookmark: Callable[[str, Object], bytes] | None = None
    """Makes a bookmark's line from its version and annotations, when bookmarks are wanted."""
    initial: tuple[Object, ...] = ()
    ends_initial: bool = False
    seconds: int | None = None


def too_large(wanted: int, current: int) -> errors.ServerError:
    """Say that a version has not been reached yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return errors.ServerError(f"Timeout: Too large resource version: {wanted}, current: {current}", status=504, reason="Timeout",
                              details={"retryAfterSeconds": 1, "causes": [cause]})


def _nothing() -> None:
    """Be the end of a subscription that never began."""


def _last_seen(event: Event) -> Object:
    """Return an object that a watch loses sight of: as it was, with the version at which it went."""
    old: Object = event.old or {}
    return {**old, "metadata": {**old["metadata"], "resourceVersion": event.obj["metadata"]["resourceVersion"]}}


class Watch:
    """Follow a store from the moment of construction; read it with `lines`, end it with `close`."""

    def __init__(self, store: Store, wish: Wish, delay: Callable[[str], float]) -> None:
        self._store = store
        self._wish = wish
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._ready: deque[bytes | None] = deque()
        self._wake = asyncio.Event()
        self._delayed: deque[tuple[float, bytes | None]] = deque()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unsubscribe: Callable[[], None] = _nothing
        self._start()

    def _start(self) -> None:
        wish = self._wish
        try:
            missed = self._missed()
        except errors.ApiError as error:
            self._ready.append(messages.encode({"type": "ERROR", "object": messages.status_object(error)}) + b"\n")
            self._ready.append(None)
            return
        for obj in wish.initial:
            self._ready.append(wish.encode("ADDED", obj))
        if wish.ends_initial and wish.bookmark is not None:
            self._ready.append(wish.bookmark(str(self._store.version), {INITIAL_EVENTS_END: "true"}))
        for event in missed:
            self._on_change(event)
        self._unsubscribe = self._store.subscribe(self._on_change, wish.resource_key)
        limit = float(wish.seconds or DEFAULT_SECONDS)
        self._later("end", limit, self._finish)
        if wish.bookmark is not None:
            self._later("bookmark", min(BOOKMARK_SECONDS, max(limit - 2.0, limit / 2)), self._on_bookmark_time)

    def _missed(self) -> list[Event]:
        if self._wish.since is None:
            return []
        if self._wish.since > self._store.version:
            raise too_large(self._wish.since, self._store.version)
        return self._store.events_since(self._wish.resource_key, self._wish.since)

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._timers[name] = self._loop.call_later(seconds, call)

    def _on_change(self, event: Event) -> None:
        now_fits = self._wish.matches(event.obj)
        fitted = event.old is not None and self._wish.matches(event.old)
        kind: str | None = event.type
        if event.type == "MODIFIED" and now_fits != fitted:
            kind = "ADDED" if now_fits else "DELETED"
        elif not now_fits and not (event.type == "DELETED" and fitted):
            kind = None
        if kind is not None:
            left = kind == "DELETED" and event.type == "MODIFIED" and event.old is not None
            self._send(self._wish.encode(kind, _last_seen(event) if left else event.obj))

    def _on_bookmark_time(self) -> None:
        if self._wish.bookmark is not None:
            self._send(self._wish.bookmark(str(self._store.version), {}))
        self._later("bookmark", BOOKMARK_SECONDS, self._on_bookmark_time)

    def _send(self, line: bytes | None) -> None:
        delay = self._delay(self._wish.resource_key)
        if delay <= 0 and not self._delayed:
            self._ready.append(line)
            self._wake.set()
            return
        earliest = self._delayed[-1][0] if self._delayed else 0.0
        self._delayed.append((max(earliest, self._loop.time() + delay), line))
        if len(self._delayed) == 1:
            self._timers["delivery"] = self._loop.call_at(self._delayed[0][0], self._arrive)

    def _arrive(self) -> None:
        now = self._loop.time()
        self._ready.append(self._delayed.popleft()[1])
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(self._delayed.popleft()[1])
        self._wake.set()
        if self._delayed:
            self._timers["delivery"] = self._loop.call_at(self._delayed[0][0], self._arrive)

    def _finish(self) -> None:
        self._unsubscribe()
        self._send(None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield each line when it is due, until the time-out of the server."""
        try:
            while True:
                while self._ready:
                    line = self._ready.popleft()
                    if line is None:
                        return
                    yield line
                self._wake.clear()
                await self._wake.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Stop following; lines on their way are dropped."""
        self._unsubscribe()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.append(None)
        self._wake.set()
