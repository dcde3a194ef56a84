"""Write core/v1 Events as client-go's recorder does, without ever holding up or failing whoever has something to say.

Differences, on purpose: no burst limit (client-go drops a busy object's events after 25 in a row), and no merging of
events that merely resemble each other. Equal ones are counted on one Event, unless the caller wants each by itself and they are
not said again and again, as where somebody undoes what we write.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpuward import errors, names
from gpuward.kube.endless import endless
from gpuward.kube.http.backoff import Backoff
from gpuward.kube.resources import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gpuward.kube.http.client import Client

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
MESSAGE_LIMIT: Final = 1024
"""The longest note of events.k8s.io/v1 (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/):
core/v1 takes more, but both APIs show the same Events."""
OFTEN: Final = 6
"""How often something is said of an object within a while until it is counted on one Event, whoever wants each by itself."""
WHILE: Final = 600.0
_WORKERS: Final = 8
_ATTEMPTS: Final = 6


class About(NamedTuple):
    """Name the object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """Hold one thing said about an object, and when (Unix seconds)."""

    about: About
    kind: str
    reason: str
    message: str
    at: float
    alone: bool = False
    """Whether it must be an Event of its own even if the same was said before."""

    @property
    def key(self) -> tuple[About, str, str, str]:
        """Return what makes two of them equal."""
        return (self.about, self.kind, self.reason, self.message)


class _Written(NamedTuple):
    name: str
    times: int


class EventRecorder:
    """Take events at any time and write them in the background, those of one object in order.

    At most `limit` wait to be written; beyond that the newest are dropped and counted in `dropped`, as are those that
    the server keeps refusing. `now` gives Unix seconds.
    `report` is called with the error when events begin to be refused, or are refused in another way, and with None when
    one is written again.
    """

    def __init__(
        self,
        client: Client,
        *,
        now: Callable[[], float],
        random: Random,
        component: str = names.EVENT_SOURCE,
        limit: int = 20_000,
        report: Callable[[errors.GpuwardError | None], None] | None = None,
    ) -> None:
        self.dropped = 0
        self.failure: errors.GpuwardError | None = None
        """Why events cannot be written now, or None."""
        self._report = report
        self._changes = 0
        self._client = client
        self._now = now
        self._random = random
        self._component = component
        self._limit = limit
        self._lanes: list[deque[RecordedEvent]] = [deque() for _ in range(_WORKERS)]
        self._signals = [asyncio.Event() for _ in range(_WORKERS)]
        self._waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._written: OrderedDict[tuple[About, str, str, str], _Written] = OrderedDict()
        self._often: OrderedDict[tuple[About, str, str, str], deque[float]] = OrderedDict()
        """When what was to be an Event of its own was said last."""
        self._last_stamp = 0

    def record(self, about: About, kind: str, reason: str, message: str, *, alone: bool = False) -> None:
        """Say something about an object; `kind` is Normal or Warning. Never waits, never raises.

        `alone` makes it an Event of its own, if it is not said too often; otherwise an equal earlier Event's count is raised.
        """
        if self._waiting >= self._limit:
            self.dropped += 1
            return
        said = RecordedEvent(about, kind, reason, message[:MESSAGE_LIMIT], self._now(), alone)
        said = replace(said, alone=alone and not self._is_often(said))
        lane = zlib.crc32(f"{about.namespace}/{about.name}".encode()) % _WORKERS
        self._lanes[lane].append(said)
        self._waiting += 1
        self._idle.clear()
        self._signals[lane].set()

    def _is_often(self, said: RecordedEvent) -> bool:
        times = self._often.setdefault(said.key, deque(maxlen=OFTEN))
        self._often.move_to_end(said.key)
        while len(self._often) > self._limit:
            self._often.popitem(last=False)
        often = len(times) == OFTEN and said.at - WHILE < times[0] <= said.at
        times.append(said.at)
        return often

    async def run(self) -> None:
        """Write what is recorded, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for lane, signal in zip(self._lanes, self._signals, strict=True):
                group.create_task(endless("the writing of events", partial(self._work, lane, signal)))

    async def flush(self) -> None:
        """Wait until all that was recorded so far is written or dropped; `run` must be running."""
        await self._idle.wait()

    async def _work(self, lane: deque[RecordedEvent], signal: asyncio.Event) -> None:
        while True:
            await signal.wait()
            signal.clear()
            while lane:
                await self._write_patiently(lane[0])
                lane.popleft()
                self._waiting -= 1
                if not self._waiting:
                    self._idle.set()

    async def _write_patiently(self, said: RecordedEvent) -> None:
        backoff = Backoff(self._random)
        for attempt in range(1, _ATTEMPTS + 1):
            changes = self._changes
            try:
                await self._write(said)
            except (errors.Unreachable, errors.ServerError, errors.TooManyRequests) as error:
                if attempt == _ATTEMPTS:
                    self._drop(error, changes)
                    return
                await asyncio.sleep(backoff.next(error))
            except errors.GpuwardError as error:
                self._drop(error, changes)
                return
            else:
                self._change(None, changes)
                return

    def _drop(self, error: errors.GpuwardError, changes: int) -> None:
        self.dropped += 1
        self._change(error, changes)

    def _change(self, failure: errors.GpuwardError | None, changes: int) -> None:
        """Note how a write ended; one that was under way at the last change says nothing about what came after it."""
        if changes != self._changes:
            return
        known = type(self.failure) is type(failure)
        self.failure = failure
        if not known:
            self._changes += 1
            if self._report is not None:
                self._report(failure)

    async def _write(self, said: RecordedEvent) -> None:
        known = None if said.alone else self._written.get(said.key)
        if known is not None and await self._count(said, known):
            return
        body = event_object(said, self._component, self._stamp(said.at))
        await self._client.create(EVENTS, body)
        if not said.alone:
            self._remember(said, _Written(body["metadata"]["name"], 1))

    async def _count(self, said: RecordedEvent, known: _Written) -> bool:
        """Raise the count of an Event; tell whether it was there (Events expire) and could be patched."""
        patch = {"count": known.times + 1, "lastTimestamp": rfc3339(said.at)}
        try:
            await self._client.patch_merge(EVENTS, known.name, patch, event_namespace(said.about))
        except (errors.NotFound, errors.Forbidden):  # NVIDIA's own role lets events be created, not patched
            return False
        self._remember(said, _Written(known.name, known.times + 1))
        return True

    def _remember(self, said: RecordedEvent, written: _Written) -> None:
        self._written[said.key] = written
        self._written.move_to_end(said.key)
        while len(self._written) > self._limit:
            self._written.popitem(last=False)

    def _stamp(self, at: float) -> int:
        """Return nanoseconds that no other event of this recorder has: they make its name unique."""
        self._last_stamp = max(int(at * 1e9), self._last_stamp + 1)
        return self._last_stamp


def event_object(said: RecordedEvent, component: str, stamp: int) -> dict[str, Any]:
    """Return the Event for something said; `stamp` (nanoseconds) makes its name."""
    about = said.about
    instant = rfc3339(said.at)
    involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        involved["namespace"] = about.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name}.{stamp:x}", "namespace": event_namespace(about)},
        "involvedObject": involved,
        "type": said.kind,
        "reason": said.reason,
        "message": said.message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": instant,
        "lastTimestamp": instant,
        "count": 1,
    }


def event_namespace(about: About) -> str:
    """Return where an object's events live: with it, or in `default` for cluster-scoped objects."""
    return about.namespace or "default"


def rfc3339(at: float) -> str:
    """Write Unix seconds as a Kubernetes Time: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
